"""ZB-V: two chunks a rank in a V, no bubble between a rank's first and last work, the memory of 1F1B."""

from symcomm.core.program.orders import VEE, Item, Schedule, Writer


def order(rank: int, p: int, m: int, v: int) -> list[Item]:
    n = max(m, 2 * p - 1)  # written for at least so many microbatches; those that there are not are left out
    work = Writer().add("F0", 2 * (p - rank) - 1).add("F1 F0", rank).add("F1 B1 W1", p - rank)
    while work.next("F", 1) < n:
        work.add("F0" if work.next("F", 0) < n else "").add("B0 W0 F1 B1 W1")
    work.add("B0 B1", rank).add("B0 W0", p - rank)
    work.add("W1", n - work.next("W", 1)).add("W0", n - work.next("W", 0))
    return [item for item in work.items if item[0].microbatch < m]


SCHEDULE = Schedule(
    "zb-v", "Two chunks per rank in a V: the rank of the first stage also runs the last one; made for F = B = W.",
    order, "Qi et al., arXiv 2401.10241, section 6", VEE, chunks=2,
)  # fmt: skip
