"""ZB-H2: more forwards in the warm-up, so that no gap is left; twice the memory."""

from symcomm.core.program.orders import Item, Schedule, late_weights, one_by_one, passes


def order(rank: int, p: int, m: int, v: int) -> list[Item]:
    return late_weights(one_by_one(passes("F", range(m)), passes("B", range(m)), 2 * (p - 1 - rank)), 2 * rank)


SCHEDULE = Schedule(
    "zb-h2", "A longer warm-up and delayed weight gradients leave no gap between a rank's first and last work.",
    order, "Qi et al., arXiv 2401.10241, Fig. 3 bottom",
)  # fmt: skip
