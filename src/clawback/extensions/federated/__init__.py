"""Federated learning: several people improve one adapter and share no turns, only adapter updates.

Every client has the same base and the same A of LoRA, drawn from a shared seed. In the first round all learn B under that A, in the second A under the B
that came of it, and so on in turn (RoLoRA; Chen et al. 2025, arXiv:2502.01755). ΔW = s·B·A is linear in the factor that a round trains: the mean of its
changes is exactly the mean of the ΔW's, noise on it is noise on ΔW, and rules against outliers compare what they should. With A always frozen (FFA-LoRA,
arXiv:2403.12313) less is learned. Averaging A and B separately is wrong wherever clients' A differ (``aggregate.apart`` is there to show it).
"""
