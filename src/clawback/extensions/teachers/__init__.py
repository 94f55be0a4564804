"""Answers of a teacher model to a corpus of prompts, for ratings, comparisons and distillation."""
