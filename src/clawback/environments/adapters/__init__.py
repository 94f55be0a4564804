"""Other people's environments, each a file."""
