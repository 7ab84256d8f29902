"""DualPipeV: DualPipe cut in half, two chunks a rank in a V and one copy of every stage."""

from symcomm.program.orders import VEE, Item, Schedule
from symcomm.program.schedules._eight_steps import eight_steps


def order(rank: int, p: int, m: int, v: int) -> list[Item]:
    return eight_steps(rank, p, m)


def refuses(p: int, m: int, v: int) -> tuple[str, str] | None:
    return (f"{m} microbatches are too few for dualpipev on {p} ranks", f"at least {2 * p}") if m < 2 * p else None


SCHEDULE = Schedule(
    "dualpipev", "The second chunk of a rank is for it what the other direction is in DualPipe, with one copy of all.",
    order, "deepseek-ai/DualPipe; Sea AI Lab, Cut-in-half, 2025", VEE, chunks=2, refuses=refuses,
)  # fmt: skip
