"""When a run starts, and the process that makes it. The one place that starts runs: hooks, commands, the server and bots come here."""
