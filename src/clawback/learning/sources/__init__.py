"""Where training examples come from: ratings, preference pairs, a teacher, graded rollouts."""
