"""The training loop, its checkpoints, and what is trained beside the adapter."""
