"""The engine on MLX: Apple's array library computes everything that involves a model's weights.

The interface to the torch engine is one function: token ids and the adapter's A and B go in, hidden states
come out, and gradients with respect to the states go back to A and B (``body.py``). Everything above it is
the torch engine, unchanged: log-probs and exact divergences from states, losses, advantages, AdamW, guards,
checkpoints, sources. So there is one implementation of the maths, and every algorithm runs on either.
Adapters are the same PEFT folders.
"""
