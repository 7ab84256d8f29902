"""V-Half: two chunks a rank in a V, half the memory of 1F1B."""

from symcomm.core.program.orders import VEE, Item, Schedule
from symcomm.core.program.schedules._blocks import from_block


def order(rank: int, p: int, m: int, v: int) -> list[Item]:
    gap = 0 if p % 2 else 3
    return from_block((2 * rank, 3 * p - 2 - rank, 3 * p + gap + 2 * rank - 1, 6 * p + gap - 2 - rank), m)


SCHEDULE = Schedule(
    "v-half", "A V whose backwards follow sooner: about half the memory of 1F1B; the order is not compacted.", order,
    "Qi et al., arXiv 2405.15362, Fig. 4", VEE, chunks=2,
)  # fmt: skip
