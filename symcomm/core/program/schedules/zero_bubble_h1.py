"""ZB-H1: the gradients of the weights fill the gaps of 1F1B, with no more memory."""

from symcomm.core.program.orders import Item, Schedule, late_weights, one_by_one, passes


def order(rank: int, p: int, m: int, v: int) -> list[Item]:
    return late_weights(one_by_one(passes("F", range(m)), passes("B", range(m)), p - 1 - rank), rank)


SCHEDULE = Schedule(
    "zb-h1", "Delayed weight gradients fill the gaps of 1F1B; equally many microbatches are in flight.", order,
    "Qi et al., arXiv 2401.10241, Fig. 3 top",
)  # fmt: skip
