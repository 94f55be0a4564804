"""Online prompt learning: which prompt answers, and how its answers are rated."""
