"""The browser agent: a page in Chromium as text or picture, and the actions on it."""
