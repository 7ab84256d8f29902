"""The eight steps of DualPipe and DualPipeV, from the repository deepseek-ai/DualPipe."""

from symcomm.core.program.orders import Item, Writer


def eight_steps(h: int, k: int, n: int, first: tuple[int, int] = (0, 0)) -> list[Item]:
    """The order of the rank h hops from where its phase 0 enters; the directions meet after k ranks.

    There are n microbatches a phase; ``first`` are the first ones of both phases.
    """
    turns = n - 2 * k + h + 1
    work = Writer(first).add("F0", 2 * (k - h - 1)).add("F0 F1", h + 1).add("B1 W F1", k - h - 1)
    if h == k - 1:  # the two phases meet: there is nothing yet to overlap with
        work.add("F0 D1 F1+D0").add("F0+D1 F1+D0", turns - 1)
    else:
        work.add("F0+D1 F1+D0", turns)
    work.add("D1 F1+D0", k - h - 1)
    whole, odd = divmod(h + 1, 2)
    # The later half of the last backwards is split, so that its weights' gradients fill the end.
    work.add("D1 D0", whole).add("D1 B0" if odd else "").add("B1 B0", whole)
    return work.add("W B0", k - h - 1).add("W", h + 1).items
