"""DualPipeV: DualPipe cut in half, two chunks a rank in a V and one copy of every stage."""

from symcomm.core.program.orders import VEE, Item, Schedule
from symcomm.core.program.schedules._eight_steps import eight_steps


def order(rank: int, p: int, m: int, v: int) -> list[Item]:
    return eight_steps(rank, p, m)


NEEDS = (("m >= 2p", "{m} microbatches are too few for dualpipev on {p} ranks", "at least {twice}"),)

SCHEDULE = Schedule(
    "dualpipev", "Like DualPipe, with a rank's second chunk in place of the other direction, and one copy of every "
                 "stage.",
    order, "deepseek-ai/DualPipe; Sea AI Lab, Cut-in-half, 2025", VEE, chunks=2, needs=NEEDS,
)  # fmt: skip
