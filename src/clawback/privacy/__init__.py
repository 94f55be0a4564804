"""How long what was said is kept, how it is deleted for good, and how it lies on the disk."""
