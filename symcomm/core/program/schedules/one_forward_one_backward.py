"""1F1B: after a warm-up, one forward and one backward in turn."""

from symcomm.core.program.orders import Item, Schedule, one_by_one, passes


def order(rank: int, p: int, m: int, v: int) -> list[Item]:
    return one_by_one(passes("F", range(m)), passes("D", range(m)), p - 1 - rank)


SCHEDULE = Schedule(
    "1f1b", "Each stage alternates forward and backward, with one microbatch in flight for each stage from it to the "
            "last.",
    order, "PipeDream-flush: Narayanan et al., arXiv 2104.04473, Fig. 4",
)  # fmt: skip
