"""Profiler exports in, tables out: text and files only, no torch, no subprocess, no plotting."""
