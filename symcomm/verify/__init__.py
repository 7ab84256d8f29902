"""Proof on PyTorch: a model as a PyTorch module, runs of it in real processes, and what is counted there."""
