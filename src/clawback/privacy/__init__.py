"""Privacy: retention, permanent deletion, and files encrypted for others."""
