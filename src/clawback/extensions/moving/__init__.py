"""A move to another base model: everything that was learned is learned again there, and both are compared."""
