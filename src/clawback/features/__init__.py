"""What an answer is like, in numbers: its style, statistics of its text, the words it uses, and its hidden states."""
