"""The analytical side: what a model must cost. Imports nothing else of kernelroof."""
