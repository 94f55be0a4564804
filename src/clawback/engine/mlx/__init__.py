"""The engine with MLX under it: Apple's array library computes everything that has a model's weights in it.

The seam is one function: token ids and the adapter's A and B go in, hidden states come out, and gradients towards the states go back to A and B
(``body.py``). Above it stands the torch engine as it is: log-probs and exact divergences from states, losses, advantages, AdamW, guards, checkpoints,
sources. So there is one implementation of the maths, and every algorithm runs on either. Adapters are the same PEFT folders.
"""
