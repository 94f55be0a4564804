"""What the loop can do without: each folder is one extension, registered in ``clawback.plugins`` and named by nothing else in the core."""
