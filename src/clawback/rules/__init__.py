"""Rules: what a person wants of every answer, in sentences, each with a check; proposed by whoever can read, tested on the ratings."""
