"""Sampling: many answers at once for training and the gate, continuous batching for the server."""
