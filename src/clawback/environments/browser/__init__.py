"""The browser agent: a page in Chromium as text or picture, and what can be done on it."""
