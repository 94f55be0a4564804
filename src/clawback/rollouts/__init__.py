"""Episodes to learn from: many at once over one sampler, token by token, in rounds; the form of replies, and rewards that no environment gives."""
