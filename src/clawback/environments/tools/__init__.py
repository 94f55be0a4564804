"""The tool-call agent: tools of several kinds, calls read from replies, tasks and what rewards them."""
