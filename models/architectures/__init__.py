"""Every causal-LM architecture of the installed transformers: listed, made small, traced, compared."""
