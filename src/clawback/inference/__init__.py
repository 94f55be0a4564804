"""Models over HTTP: an upstream behind the recording proxy, or the live version by our engine; each answer becomes a turn."""
