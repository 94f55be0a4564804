"""A trainer elsewhere: the verbs of Tinker's API over HTTP, a training run written on them, and our own engine behind the same verbs.

Tinker's API is what hosted LoRA trainers agree on: one client reaches Tinker, SkyRL's server on GPUs of one's own, and those that are compatible.
``stand_in`` is such a server on this machine, so that all of it can be used and tested without an account.
"""
