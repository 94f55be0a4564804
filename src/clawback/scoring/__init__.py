"""Evaluation of given tokens: packed forward passes, log-probs, hidden states, exact KL, and the fast kernels under them."""
