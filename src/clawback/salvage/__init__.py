"""Damage to the database: copies made before there is any, and what can be read saved into a new file afterwards."""
