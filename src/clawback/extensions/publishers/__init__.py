"""Publishers: one file for each server that can be given a version, and the GGUF files that some of them read."""
