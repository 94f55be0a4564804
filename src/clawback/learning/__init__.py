"""A training run: its recipe and budget, the sources of its examples, and the loop that steps on them."""
