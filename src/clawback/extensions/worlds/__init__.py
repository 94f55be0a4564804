"""Adapters to other projects' environments, one file each."""
