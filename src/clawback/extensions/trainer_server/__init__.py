"""A server of Tinker's API on our torch engine, over real HTTP: to share one machine's base model, and to test a client without an account."""
