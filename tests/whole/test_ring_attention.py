"""Ring attention on every rank, as NumPy arrays that travel: what it makes, and every number that it sends."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from api import Accounting, StrategyError, parse_strategy
from api import program_program_program as program
from test_attention_over_a_cut_sequence import of, one_layer, sent

import symcomm as sc

Array = np.ndarray
ORDERS = ("contiguous", "zigzag", "striped")


def positions(order: str, length: int, k: int) -> list[Array]:
    """The positions of each rank."""
    every = np.arange(length)
    if order == "striped":
        return [every[r::k] for r in range(k)]
    if order == "zigzag":
        parts = np.split(every, 2 * k)
        return [np.concatenate([parts[r], parts[-1 - r]]) for r in range(k)]
    return np.split(every, k)


def scores(q: Array, key: Array, at_q: Array, at_k: Array, causal: bool) -> Array:
    """The scores of heads [heads, queries, keys]; a group of heads shares a key head."""
    group = q.shape[0] // key.shape[0]
    s = q @ np.repeat(key, group, 0).transpose(0, 2, 1)
    return np.where(at_q[:, None] >= at_k[None], s, -np.inf) if causal else s


def shared(gradient: Array, heads: int) -> Array:
    """The gradient of a key head: the sum over the heads that share it."""
    return gradient.reshape(heads, -1, *gradient.shape[1:]).sum(1)


def serial(q: Array, key: Array, value: Array, dz: Array, causal: bool) -> tuple[Array, ...]:
    """The output and the gradients of queries, keys and values on one machine."""
    every, group = np.arange(q.shape[1]), q.shape[0] // key.shape[0]
    s = scores(q, key, every, every, causal)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    z, dp = p @ np.repeat(value, group, 0), dz @ np.repeat(value, group, 0).transpose(0, 2, 1)
    ds = p * (dp - (dp * p).sum(-1, keepdims=True))
    dk, dv = ds.transpose(0, 2, 1) @ q, p.transpose(0, 2, 1) @ dz
    return z, ds @ np.repeat(key, group, 0), shared(dk, len(key)), shared(dv, len(key))


class RingRun:
    """Ranks that have some positions each: ``sent`` are the numbers that each rank has sent, by what they are."""

    def __init__(self, arrays: tuple[Array, ...], order: str, k: int, causal: bool) -> None:
        self.k, self.causal, self.at = k, causal, positions(order, arrays[0].shape[1], k)
        self.q, self.key, self.value, self.dz = ([a[:, at] for at in self.at] for a in arrays)
        self.group = len(arrays[0]) // len(arrays[1])
        self.sent = {"ring-pass": [0] * k, "gradients": [0] * k}

    def pass_on(self, what: str, held: list[list[Array]]) -> list[list[Array]]:
        """What each rank has, one rank further."""
        for rank, some in enumerate(held):
            self.sent[what][rank] += sum(a.size for a in some)
        return [held[(rank - 1) % self.k] for rank in range(self.k)]

    def forward(self) -> list[Array]:
        """The output of each rank, from a running maximum, sum and value of each row."""
        first = [q.shape[:2] for q in self.q]
        top, total, z = [np.full(s, -np.inf) for s in first], [np.zeros(s) for s in first], [0 * q for q in self.q]
        blocks = [[key, value] for key, value in zip(self.key, self.value, strict=True)]
        for step in range(self.k):
            for r, (key, value) in enumerate(blocks):
                s = scores(self.q[r], key, self.at[r], self.at[(r - step) % self.k], self.causal)
                new = np.maximum(top[r], s.max(-1))
                safe = np.where(np.isinf(new), 0, new)
                old, p = np.exp(top[r] - safe), np.exp(s - safe[..., None])
                total[r], top[r] = total[r] * old + p.sum(-1), new
                z[r] = z[r] * old[..., None] + p @ np.repeat(value, self.group, 0)
            blocks = self.pass_on("ring-pass", blocks) if step < self.k - 1 else blocks
        self.rows = [t + np.log(n) for t, n in zip(top, total, strict=True)]
        self.z = [a / n[..., None] for a, n in zip(z, total, strict=True)]
        return self.z

    def part(self, r: int, block: int, key: Array, value: Array) -> tuple[Array, Array, Array]:
        """What one block gives to the gradients of a rank's queries, and of its own keys and values."""
        p = np.exp(scores(self.q[r], key, self.at[r], self.at[block], self.causal) - self.rows[r][..., None])
        dp = self.dz[r] @ np.repeat(value, self.group, 0).transpose(0, 2, 1)
        ds = p * (dp - (self.dz[r] * self.z[r]).sum(-1, keepdims=True))
        dk, dv = ds.transpose(0, 2, 1) @ self.q[r], p.transpose(0, 2, 1) @ self.dz[r]
        return ds @ np.repeat(key, self.group, 0), shared(dk, len(key)), shared(dv, len(key))

    def backward(self, from_home: bool) -> tuple[list[Array], list[Array], list[Array]]:
        """The gradients that each rank ends with; those of keys and values travel with their block."""
        dq = [np.zeros_like(q) for q in self.q]
        blocks = [[key, value] for key, value in zip(self.key, self.value, strict=True)]
        own: list[list[Array]] = [[] for _ in range(self.k)]
        sums: list[list[Array]] = [[] for _ in range(self.k)]
        for step in range(self.k):
            for r, (key, value) in enumerate(blocks):
                more, *mine = self.part(r, (r - step) % self.k, key, value)
                dq[r] += more
                if step == 0 and not from_home:
                    own[r] = mine
                else:
                    sums[r] = [a + b for a, b in zip(sums[r], mine, strict=True)] if sums[r] else mine
            blocks = self.pass_on("ring-pass", blocks) if step < self.k - 1 else blocks
            if step or from_home:
                sums = self.pass_on("gradients", sums)
        if not from_home:
            sums = [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(sums, own, strict=True)]
        return dq, [dk for dk, _ in sums], [dv for _, dv in sums]

    def whole(self, parts: list[Array]) -> Array:
        """The parts of all ranks in the order of positions."""
        made = np.concatenate(parts, 1)
        made[:, np.concatenate(self.at)] = made.copy()
        return made


def drawn(heads: int, shared_heads: int, length: int, size: int) -> tuple[Array, ...]:
    rng = np.random.default_rng(7)
    return tuple(rng.normal(size=(n, length, size)) for n in (heads, shared_heads, shared_heads, heads))


@pytest.mark.few(6)
@pytest.mark.parametrize("how", ["shortest", "from_home"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("k", "causal"), [(2, True), (3, False), (3, True), (4, True)])
def test_every_rank_of_a_ring_makes_its_part_and_sends_what_is_derived(
    k: int, causal: bool, order: str, how: str
) -> None:
    arrays = drawn(4, 2, 4 * k, 3)
    run = RingRun(arrays, order, k, causal)
    z, dq, dk, dv = serial(*arrays, causal)
    assert np.allclose(run.whole(run.forward()), z)
    forward = dict(run.sent)["ring-pass"][:]
    made = run.backward(how == "from_home")
    assert all(np.allclose(run.whole(a), b) for a, b in zip(made, (dq, dk, dv), strict=True))
    model = one_layer(4, 2, 3, {"B": "1", "L": str(4 * k)}, 2)
    said = {"communication": "sent_per_rank", "ring_gradients": how}
    assert {*forward} == {sent(model, f"ring({k})", "ring-pass") / 2}
    assert {n - m for n, m in zip(run.sent["ring-pass"], forward, strict=True)} == {
        sent(model, f"ring({k})", "ring-pass", "backward") / 2
    }
    kind = {"shortest": "ring-sum", "from_home": "ring-sum-home"}[how]
    gradients = model.communication(f"ring({k})", collective=kind, phase="backward", accounting=said)
    assert {*run.sent["gradients"]} == {gradients.at().value / 4}
    assert {"ring_gradients", "ring_format"} <= {*gradients.touched}


@pytest.mark.parametrize(("u", "r"), [(2, 2), (2, 3)])
def test_every_rank_of_ulysses_inside_a_ring_makes_its_part_and_sends_what_is_derived(u: int, r: int) -> None:
    """Ranks (i, j): i of u exchange positions for heads, j of r are a ring."""
    length, arrays = 2 * u * r, drawn(4, 2, 2 * u * r, 3)
    parts = [np.split(every, u) for every in np.split(np.arange(length), r)]
    exchanged = 0
    runs = []
    for i in range(u):
        # After the exchange rank (i, j) has the heads of place i and the positions of all u ranks of its group.
        mine = tuple(np.split(a, u)[i] for a in arrays)
        runs.append(RingRun(mine, "contiguous", r, True))
    for i, j in product(range(u), range(r)):
        for a in arrays[:3]:
            exchanged += sum(np.split(a, u)[other][:, parts[j][i]].size for other in range(u) if other != i)
    z = serial(*arrays, True)[0]
    made = np.concatenate([run.whole(run.forward()) for run in runs])
    assert np.allclose(made, z)
    exchanged += sum(np.split(z, u)[i][:, parts[j][o]].size for i, j in product(range(u), range(r)) for o in range(u)
                     if o != i)  # fmt: skip
    model = one_layer(4, 2, 3, {"B": "1", "L": str(length)}, 2)
    assert sent(model, f"ring({r}) + ulysses({u})", "all-to-all") == Fraction(2 * exchanged, u * r)
    assert {2 * n for run in runs for n in run.sent["ring-pass"]} == {
        sent(model, f"ring({r}) + ulysses({u})", "ring-pass")
    }


@pytest.mark.parametrize(("heads", "shared", "u", "r"), [(8, 1, 4, 2), (4, 1, 2, 3), (8, 2, 4, 2)])
def test_a_ring_passes_copies_of_few_heads_on(heads: int, shared: int, u: int, r: int) -> None:
    """A head is copied for each of u ranks before the exchange, its gradients are added behind the one back."""
    model = one_layer(heads, shared, 4, {"B": "2", "L": str(6 * u * r)}, 2)
    strategy, block = f"ring({r}) + ulysses({u})", 2 * 2 * 6 * 4  # bytes of a head at the positions of a rank
    exchanged = Fraction(u - 1, u) * block * (2 * heads + 2 * u)
    assert [sent(model, strategy, "all-to-all", phase) for phase in ("forward", "backward")] == [exchanged] * 2
    passed = (r - 1) * 2 * u * block  # keys and values of one head at the positions of u ranks
    assert [sent(model, strategy, "ring-pass", phase) for phase in ("forward", "backward")] == [passed] * 2
    assert sent(model, strategy, "ring-sum", "backward") == 2 * passed  # in fp32


@pytest.mark.parametrize("case", of("ring.bytes"))
def test_a_ring_sends_the_bytes_that_were_counted_by_hand(case: dict) -> None:
    at, said = case["at"], case["question"]
    model = one_layer(2 * int(at["n_kv"]), int(at["n_kv"]), int(at["H"]), at, int(at["b"]))
    strategy = f"ring({at['k']})"
    if "forward" in said:
        assert sent(model, strategy, "ring-pass") == int(case["value"])
        return
    how, kind = ("from_home", "ring-sum-home") if "PyTorch" in said else ("shortest", "ring-sum")
    counted = {"communication": "sent_per_rank", "ring_gradients": how}
    gradients = model.communication(strategy, collective=kind, phase="backward", accounting=counted).at().value
    assert sent(model, strategy, "ring-pass", "backward") + gradients == int(case["value"])
    narrow = {**counted, "ring_format": "as_activations"}
    half = model.communication(strategy, collective=kind, phase="backward", accounting=narrow).at().value
    assert half == gradients / 2


@pytest.mark.parametrize("case", of("hybrid.bytes"))
def test_a_ring_passes_the_keys_of_its_own_heads_on(case: dict) -> None:
    at = case["at"]
    model = one_layer(int(at["n_H"]), int(at["n_kv"]), int(at["H"]), at, int(at["b"]))
    strategy = f"ring({at['r']}) + ulysses({at['u']})"
    assert [sent(model, strategy, kind) for kind in ("all-to-all", "ring-pass")] == [*map(int, case["value"])]


def alive(model: sc.Model, strategy: str, row: str) -> Fraction:
    """MiB that are there in the forward pass when an op runs."""
    made = model.peak_memory(strategy=strategy, step="forward")
    rows = {what: cells for exhibit in made.exhibits for _, what, *cells in exhibit.rows if len(cells) > 3}
    return Fraction(str(rows[row][-1]).replace("\N{NO-BREAK SPACE}", "").replace(" ", "").replace("\u202f", ""))


@pytest.mark.parametrize("case", [c for c in of("ring.memory") if "published" not in c.values[0]])
def test_a_ring_holds_its_own_part_and_two_buffers_of_keys_and_values(case: dict) -> None:
    at = case["at"]
    own, ring, gathered = (Fraction(int(n), 2**20) for n in case["value"])
    model = one_layer(4 * int(at["n_kv"]), int(at["n_kv"]), int(at["H"]), at, int(at["b"]))
    k = at["k"]
    assert alive(model, f"context({k})", "`Z_i`") - alive(model, f"ring({k})", "`Z_i`") == gathered - ring
    kept = [model.activation_memory(strategy=f"{name}({k})").at().value for name in ("context", "ring")]
    assert Fraction(kept[0] - kept[1], 2**20) == gathered - own


def test_the_loop_of_a_ring_is_the_core_of_attention_and_what_repeats_the_blocks() -> None:
    model = one_layer(4, 2, 3, {"B": "1", "L": "8"}, 2)
    made = program(model.graph, parse_strategy("ring(4)"), Accounting())
    found = [(t.phase, getattr(t.work, "kind", "") or t.work.op.output) for t in made.instructions if t.ring]
    assert [name for phase, name in found if phase == "forward" and "·" not in name] == [
        "ring-pass", "T_i", "ring-pass", "U_i", "P_i", "Z_i",
    ]  # fmt: skip
    assert [name for phase, name in found if phase == "recompute"][:2] == ["T_i", "U_i"]
    assert [name for phase, name in found if phase == "backward" and "ring" in name] == [
        "ring-pass", "ring-pass", "ring-sum", "ring-sum",
    ]  # fmt: skip
    assert not [t for t in made.instructions if getattr(t.work, "kind", "") in ("all-gather", "reduce-scatter")]


def test_two_rings_do_not_make_one() -> None:
    model = one_layer(4, 2, 3, {"B": "1", "L": "8"}, 2)
    with pytest.raises(StrategyError, match="would go round the mesh axes 'ring' and 'context' at once") as caught:
        model.communication("ring(2) + context(2)")
    assert "hint: cut positions by one ring, or by ring(k) + ulysses(u)" in str(caught.value)


RUN = [c for c in of("measured") if c.values[0]["options"]["method"] == "alltoall"]


@pytest.mark.few(4)
@pytest.mark.parametrize("case", RUN)
def test_the_ring_of_pytorch_sends_as_many_bytes_as_were_measured(case: dict) -> None:
    """Each of its all-to-alls is a permutation: all that a rank puts in goes to the next one."""
    at, k = case["at"], case["options"]["ranks"]
    wide = {"float32": 4, "bfloat16": 2}[case["options"]["dtype"]]
    model, strategy = one_layer(int(at["nh"]), int(at["nkv"]), int(at["H"]), at, wide), f"ring({k})"
    calls = [(phase, what, int(size)) for phase, _, what, *_, size in case["value"]]
    for phase in ("forward", "backward"):
        sizes = [size for where, what, size in calls if (where, what) == (phase, "K and V")]
        assert len(sizes) == k - 1
        assert sent(model, strategy, "ring-pass", phase) == sum(sizes)
    gradients = [size for _, what, size in calls if what == "grad of K and V"]
    assert len(gradients) == k
    said = {"communication": "sent_per_rank", "ring_gradients": "from_home"}
    made = model.communication(strategy, collective="ring-sum-home", phase="backward", accounting=said)
    assert made.at().value == sum(gradients)


@pytest.mark.parametrize("softmax", ["library", "fused"])
def test_selective_recomputation_computes_no_more_on_a_ring_than_under_a_gather(softmax: str) -> None:
    model, said = one_layer(4, 2, 3, {"B": "1", "L": "8"}, 2), Accounting.of("selective_recomputation", softmax=softmax)
    again = []
    for strategy in ("context(2)", "ring(2)"):
        made = program(model.graph, parse_strategy(strategy), said)
        steps = (t for t in made.instructions if t.phase == "recompute" and hasattr(t.work, "step"))
        again.append([t.work.op.output for t in steps])
    assert [name for name in again[1] if name not in ("T_i", "U_i")] == again[0]
    assert [name for name in again[1] if name in ("T_i", "U_i")] == ["T_i", "U_i"]


def test_weights_that_the_ranks_of_a_ring_shard_are_gathered_as_ever() -> None:
    model = one_layer(4, 2, 8, {"B": "2", "L": "8"}, 2)
    calls = {
        name: {
            kind: sent(model, f"fully-sharded(2, over={name}) + {name}(4)", kind, phase)
            for kind, phase in (("all-gather", "backward"), ("reduce-scatter", "backward"), ("ring-pass", "forward"))
        }
        for name in ("context", "ring")
    }
    alone = sent(model, "ring(4)", "ring-pass") / 2
    assert calls["ring"]["ring-pass"] == alone > 0 == calls["context"]["ring-pass"]
    assert calls["ring"]["all-gather"] == calls["context"]["all-gather"] > 0
    # The gather's gradients of keys and values are scattered, in as many bytes as went round.
    assert calls["context"]["reduce-scatter"] - calls["ring"]["reduce-scatter"] == alone


GATHERED = [c for c in of("measured") if c.values[0]["options"]["method"] == "allgather"]


@pytest.mark.few(3)
@pytest.mark.parametrize("case", GATHERED)
def test_the_gather_of_pytorch_sends_as_many_bytes_as_were_measured(case: dict) -> None:
    """It gathers keys and values in either pass; their gradients go round as on its ring, from home."""
    at, k = case["at"], case["options"]["ranks"]
    wide = {"float32": 4, "bfloat16": 2}[case["options"]["dtype"]]
    model = one_layer(int(at["nh"]), int(at["nkv"]), int(at["H"]), at, wide)
    calls = [(phase, kind, int(size)) for phase, kind, *_, size in case["value"]]
    for phase in ("forward", "backward"):
        (whole,) = [size for where, kind, size in calls if (where, kind) == (phase, "all_gather")]
        said = {"communication": "sent_per_rank", "gathered_activations": "regather"}
        made = model.communication(f"context({k})", collective="all-gather", phase=phase, accounting=said)
        assert made.at().value == Fraction(k - 1, k) * whole
    home = {"communication": "sent_per_rank", "ring_gradients": "from_home"}
    made = model.communication(f"ring({k})", collective="ring-sum-home", phase="backward", accounting=home)
    assert made.at().value == sum(size for _, kind, size in calls if kind == "all_to_all")
