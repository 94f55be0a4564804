"""Reward models: trained on your ratings or a file, asked for scores, and used as a run's grader; and the verifiers that come with Clawback."""
