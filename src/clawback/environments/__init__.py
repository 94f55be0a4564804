"""What answers a policy's messages and rewards them: environments, their tasks, and episodes in them."""
