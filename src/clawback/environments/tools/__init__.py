"""The tool-call agent: several kinds of tools, parsing of calls from replies, tasks and their rewards."""
