"""The training loop, its checkpoints, and the modules that are trained beside the adapter."""
