"""Training on a hosted trainer: a client for Tinker's API, training runs over it, and a server that offers our own engine by it.

Tinker's API is what hosted LoRA trainers have in common: one client reaches Tinker, SkyRL's server on GPUs of
one's own, and compatible servers. ``stand_in`` is such a server on this machine, so that all of it can be
used and tested without an account.
"""
