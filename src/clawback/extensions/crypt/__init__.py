"""The database encrypted on the disk: turning it on and off, its state, and copies of its key."""
