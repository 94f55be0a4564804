"""Privacy: retention, permanent deletion, and encryption on disk."""
