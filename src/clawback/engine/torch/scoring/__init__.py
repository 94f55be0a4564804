"""What a model makes of given tokens: packed forward passes, log-probs, hidden states, exact KL, and the fast paths under them."""
