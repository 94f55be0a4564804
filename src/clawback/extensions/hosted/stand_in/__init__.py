"""A server of Tinker's API on our torch engine, over real HTTP: to test against, and to share one machine's base model."""
