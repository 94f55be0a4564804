"""Tool calls: several kinds of tools, the parsing of calls from replies, sets of tasks, and rewards."""
