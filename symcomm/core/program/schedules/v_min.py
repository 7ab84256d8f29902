"""V-Min: two chunks a rank in a V, the least memory, a third of 1F1B's."""

from symcomm.core.program.orders import VEE, Item, Schedule
from symcomm.core.program.schedules._blocks import from_block


def order(rank: int, p: int, m: int, v: int) -> list[Item]:
    gap = 0 if p % 3 else 2
    return from_block((rank, 2 * p - 1 - rank, 2 * p + gap + rank, 4 * p + gap - 1 - rank), m)


SCHEDULE = Schedule(
    "v-min", "A V whose backwards follow at once: about a third of the memory of 1F1B; the order is not compacted.",
    order, "Qi et al., arXiv 2405.15362, Fig. 4", VEE, chunks=2,
)  # fmt: skip
