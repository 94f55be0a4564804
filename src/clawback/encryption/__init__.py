"""Encryption of the database: SQLCipher as if it were SQLite, and where the key is kept. Which databases are encrypted, and the change, is ``extensions/crypt``."""
