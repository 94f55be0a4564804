"""Runs on episodes as a job: what is played, by whom, the form of its replies, and the version that comes of it."""
