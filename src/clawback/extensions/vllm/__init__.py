"""Drawing by vLLM: a process of the run or a server elsewhere, which takes the run's weights as an adapter after each change."""
