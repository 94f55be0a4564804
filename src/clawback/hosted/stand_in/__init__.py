"""Our torch engine behind Tinker's API, over real HTTP: a trainer to try and test against, and to share one machine's base model by."""
