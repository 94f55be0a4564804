"""Search for a better prompt: proposals (by a model, templates, generations, GEPA), races, budgets, and resuming."""
