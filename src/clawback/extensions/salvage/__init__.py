"""A damaged database: what can be read of it is saved into a new one."""
