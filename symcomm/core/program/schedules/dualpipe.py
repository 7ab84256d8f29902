"""DualPipe: microbatches enter at both ends, forwards and backwards overlap."""

from symcomm.core.program.orders import TWO_WAY, Item, Schedule
from symcomm.core.program.schedules._eight_steps import eight_steps


def order(rank: int, p: int, m: int, v: int) -> list[Item]:
    first = (0, m // 2) if 2 * rank < p else (m // 2, 0)
    return eight_steps(min(rank, p - 1 - rank), p // 2, m // 2, first)


HALVES = "half of them is for each direction of dualpipe"
NEEDS = (
    ("p = 2 ceil(p/2)", "{p} ranks are odd: " + HALVES, "an even number"),
    ("m = 2 ceil(m/2)", "{m} microbatches are odd: " + HALVES, "an even number"),
    ("m >= 2p", "{m} microbatches are too few for dualpipe on {p} ranks", "at least {twice}"),
)

SCHEDULE = Schedule(
    "dualpipe", "Two copies of every stage: microbatches enter at both ends, and forwards overlap with backwards.",
    order, "DeepSeek-V3, arXiv 2412.19437, section 3.2.1; deepseek-ai/DualPipe", TWO_WAY, chunks=2, needs=NEEDS,
)  # fmt: skip
