"""Training on a hosted trainer: a client for Tinker's API and Fireworks', and training runs over it.

Tinker's API is what hosted LoRA trainers have in common: one client reaches Tinker, SkyRL's server on GPUs of
one's own, compatible servers, and Clawback's own (``extensions/trainer_server``).
"""
