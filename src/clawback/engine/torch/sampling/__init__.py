"""Answers are drawn: many at once for training and the gate, continuously batched for the server."""
