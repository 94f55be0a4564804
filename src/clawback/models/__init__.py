"""Base models, their adapters and their chat templates: loading and saving."""
