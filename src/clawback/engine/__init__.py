"""Runs the maths on weights. Knows no SQL and no HTTP."""
