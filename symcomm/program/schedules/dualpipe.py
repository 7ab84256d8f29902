"""DualPipe: microbatches enter at both ends, forwards and backwards overlap."""

from symcomm.program.orders import TWO_WAY, Item, Schedule
from symcomm.program.schedules._eight_steps import eight_steps


def order(rank: int, p: int, m: int, v: int) -> list[Item]:
    first = (0, m // 2) if 2 * rank < p else (m // 2, 0)
    return eight_steps(min(rank, p - 1 - rank), p // 2, m // 2, first)


def refuses(p: int, m: int, v: int) -> tuple[str, str] | None:
    if p % 2 or m % 2:
        what, size = ("ranks", p) if p % 2 else ("microbatches", m)
        return f"{size} {what} are odd: half of them is for each direction of dualpipe", f"{size + 1}, for instance"
    if m < 2 * p:
        return f"{m} microbatches are too few for dualpipe on {p} ranks", f"at least {2 * p}"
    return None


SCHEDULE = Schedule(
    "dualpipe", "Two copies of every stage: microbatches enter at both ends, and forwards overlap with backwards.",
    order, "DeepSeek-V3, arXiv 2412.19437, section 3.2.1; deepseek-ai/DualPipe", TWO_WAY, chunks=2, refuses=refuses,
)  # fmt: skip
