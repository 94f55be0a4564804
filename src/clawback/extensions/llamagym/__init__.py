"""LlamaGym's interface: an agent of the user's that puts a Gymnasium world into words, and learns (``clawback.Agent``)."""
