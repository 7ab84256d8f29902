"""Orders from a building block: slots for one microbatch, repeated every six slots."""

from symcomm.core.program.orders import Action, Item


def from_block(slots: tuple[int, int, int, int], m: int) -> list[Item]:
    """The order of a rank; ``slots`` are those of the forwards of chunk 0 and 1 and the backwards of chunk 1 and 0.

    A slot without an action takes a pending gradient of weights: chunk 1 before chunk 0, the oldest first.
    """
    kinds = (("F", 0), ("F", 1), ("B", 1), ("B", 0))
    taken = {
        slot + 6 * i: Action(kind, chunk, i) for i in range(m) for slot, (kind, chunk) in zip(slots, kinds, strict=True)
    }
    pending: dict[int, list[Action]] = {1: [], 0: []}
    found: list[Item] = []
    for slot in range(max(taken) + 1):
        action = taken.get(slot)
        if action is None:
            queue = pending[1] or pending[0]
            if queue:
                found.append((queue.pop(0),))
            continue
        found.append((action,))
        if action.kind == "B":
            pending[action.stage].append(action._replace(kind="W"))
    return found + [(action,) for queue in pending.values() for action in queue]
