"""GPipe: all forwards, then all backwards."""

from symcomm.core.program.orders import Item, Schedule, passes


def order(rank: int, p: int, m: int, v: int) -> list[Item]:
    # The paper draws the backwards last in, first out; most code runs them in the order of the forwards.
    return passes("F", range(m)) + passes("D", range(m))


SCHEDULE = Schedule(
    "gpipe", "All microbatches run forward before any runs backward, so all of them are in flight.", order,
    "Huang et al., arXiv 1811.06965, Fig. 2",
)  # fmt: skip
