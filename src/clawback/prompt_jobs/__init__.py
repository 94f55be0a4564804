"""Prompt learning as a job: one search at a time, from feedback to the gate, and what was learned as lines of a prompt or of an agent's rules file."""
