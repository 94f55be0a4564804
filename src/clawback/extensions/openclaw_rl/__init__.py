"""Settings of OpenClaw-RL, translated into ours."""
