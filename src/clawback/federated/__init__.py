"""Several people improve one adapter and share no turns: what each learned, put together.

Every client has the same base and the same A of LoRA, drawn from a shared seed and frozen, and learns B alone (FFA-LoRA; Sun et al. 2024,
arXiv:2403.12313). ΔW = s·B·A is then linear in B: the mean of the B's is exactly the mean of the ΔW's, noise on B is noise on ΔW, and rules
against outliers compare what they should. Averaging A and B apart is wrong wherever clients' A differ (``aggregate.apart`` is there to show it).
"""
