"""Base models, adapters on them, and their chat templates: what is loaded, and what is saved."""
