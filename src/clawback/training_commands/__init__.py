"""Commands about what is learned: runs, versions, prompts, environments, judges. The rest of the command line is ``cli``, which finds these by name."""
