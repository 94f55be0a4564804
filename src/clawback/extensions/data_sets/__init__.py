"""Records of data sets: messages in all ways of writing them, answers with ratings, pairs, rankings and verdicts, and the entries that every reader gives."""
