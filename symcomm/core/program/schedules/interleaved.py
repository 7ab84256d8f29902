"""Interleaved 1F1B: a rank holds several chunks of layers."""

from symcomm.core.program.orders import Action, Item, Schedule, one_by_one


def order(rank: int, p: int, m: int, v: int) -> list[Item]:
    forward: list[Item] = []
    backward: list[Item] = []
    for turn in range(0, m, p):
        # As many microbatches as ranks pass one chunk before the next chunk has its turn.
        for chunk in range(v):
            for i in range(turn, turn + p):
                forward.append((Action("F", chunk, i),))
                backward.append((Action("D", v - 1 - chunk, i),))
    return one_by_one(forward, backward, 2 * (p - 1 - rank) + (v - 1) * p)


NEEDS = (
    "m = p ceil(m/p)", "{m} microbatches are no multiple of {p} stages",
    "the interleaved schedule passes as many microbatches as there are stages at a time",
)  # fmt: skip

SCHEDULE = Schedule(
    "interleaved", "A rank holds several chunks of layers and alternates one forward and one backward.", order,
    "Narayanan et al., arXiv 2104.04473, section 2.2.2", chunks=None, needs=(NEEDS,),
)  # fmt: skip
