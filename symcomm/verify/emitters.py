"""How each op kind is written in PyTorch: one emitter a kind, in one table.

An emitter gets the op as ``Spelled``: its operands as expressions with the letters of their axes, and gives the
expression of its result with the letters of that. A letter is what is never taken apart in the op: one loop, or
several that stand side by side wherever they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import accumulate
from typing import Any

from symcomm.core.errors import RenderError
from symcomm.core.records import dataclass

Letter = tuple[int, ...]


@dataclass(frozen=True)
class Operand:
    """An operand: its expression, the letters of its axes, and what it is."""

    text: str
    letters: tuple[Letter, ...]
    role: str = ""
    simple: bool = True  # whether a method may be called on it without parentheses


@dataclass
class Spelled:
    """An op as it is to be written: ``sizes`` gives the size of a letter, ``helpers`` collects functions it needs."""

    kind: str
    operands: list[Operand]
    letters: tuple[Letter, ...]
    attributes: Mapping[str, Any]
    sizes: Callable[[Letter], str]
    number: Callable[[Any], str]
    mean: bool = False  # whether it is a mean over what it sums
    constant: str = ""  # what the last operand is, where it is made of something else: onehot, first, place, eye, ...
    helpers: set[str] = field(default_factory=set)
    size: Callable[[Letter], Any] = len
    attends: str = ""  # the function that does attention in one kernel


def called(text: str) -> str:
    """An expression on which a method may be called.

    >>> called("x @ W"), called("2*D"), called("self.W"), called("f(x, y)")
    ('(x @ W)', '(2*D)', 'self.W', 'f(x, y)')
    """
    depth = 0
    for c in text:
        depth += c in "([" or -(c in ")]")
        if c in " */" and depth == 0:
            return f"({text})"
    return text


def arranged(text: str, have: tuple[Letter, ...], want: tuple[Letter, ...]) -> str:
    """The axes of an operand in another order, with an axis of one where it lacks a letter behind one that it has."""
    order = [have.index(x) for x in want if x in have]
    if sorted(order) != order:
        swapped = [*range(len(order))]
        swapped[-2:] = reversed(swapped[-2:])
        text = f"{called(text)}.mT" if order == swapped else f"{called(text)}.permute({', '.join(map(str, order))})"
    first = next((n for n, x in enumerate(want) if x in have), len(want))
    if all(x in have for x in want[first:]):
        return text
    places = ", ".join(":" if x in have else "None" for x in want[first:])
    return f"{called(text)}[{places}]"


def _elementwise(op: Spelled, sign: str) -> str:
    parts = [arranged(o.text, o.letters, op.letters) for o in op.operands]
    return f" {sign} ".join(called(p) if sign == "*" else p for p in parts)


def _contraction(op: Spelled) -> str:
    """A contraction: a view, a sum, a product of elements, a matrix product, or any other product by its letters."""
    scale = op.attributes.get("scale")
    text = _product(op)
    return text if op.mean or scale is None or scale == 1 else _scaled(op, text, scale)


def _product(op: Spelled) -> str:
    out, have = op.letters, {x for o in op.operands for x in o.letters}
    if op.constant == "onehot":
        return _lookup(op)
    if op.constant == "first":
        o, gone = op.operands[0], op.operands[1].letters[0]
        return f"{called(o.text)}.select({o.letters.index(gone)}, 0)"
    if op.constant == "place":
        return op.operands[0].text
    if op.constant == "last":
        gone, made = op.operands[1].letters
        kept = tuple(made if x == gone else x for x in op.operands[0].letters)
        return arranged(f"{called(op.operands[0].text)}.narrow({kept.index(made)}, -1, 1)", kept, out)
    if op.constant == "dropout":
        return f"F.dropout({op.operands[0].text}, self.dropout, self.training)"
    if op.constant == "eye":
        o, pair = op.operands
        same = {x: next(y for y in (x, *pair.letters) if y in out) for x in o.letters}  # the two are one in the result
        spelled, result = ("".join(chr(ord("a") + out.index(x)) for x in some) for some in (same.values(), out))
        return f'torch.einsum("{spelled}->{result}", {o.text})'
    if len(op.operands) == 1:
        return _view(op)
    if op.attributes.get("elementwise"):
        return " * ".join(called(o.text) for o in op.operands)
    if len(out) == 2 and [o.letters for o in op.operands] == [(x,) for x in out]:
        return f"{called(op.operands[0].text)}[:, None] @ {called(op.operands[1].text)}[None]"
    if {*out} == have:
        return _elementwise(op, "*")
    if len(op.operands) == 2:
        a, b = op.operands
        summed = [x for x in a.letters if x not in out]
        batch = tuple(x for x in out if x in a.letters and x in b.letters)
        if len(summed) == 1 and summed[0] in b.letters and {*out} <= have and a.letters[-1:] == (summed[0],):
            k, inner, outer = summed[0], a.letters[:-1], [x for x in b.letters if x != summed[0] and x not in batch]
            fits = inner + tuple(outer) == out and len(outer) <= 1
            plain = not batch and len(b.letters) == 2
            stacked = bool(batch) and a.letters[: len(batch)] == b.letters[: len(batch)] == batch and (
                len(a.letters) == len(b.letters) == len(batch) + 2)  # fmt: skip
            if fits and outer and (plain or stacked):
                right = b.text if b.letters[-2:] == (k, outer[0]) else f"{called(b.text)}.mT"
                right = right.removesuffix(".mT") + ".T" if right.endswith(".mT") and len(b.letters) == 2 else right
                return f"{_factor(a.text)} @ {called(right)}"
    names = {x: chr(ord("a") + n) for n, x in enumerate(dict.fromkeys(x for o in op.operands for x in o.letters))}
    if not {*out} <= {*names}:
        raise RenderError("a product that repeats its result along an axis is not written in PyTorch yet")
    spelled = ",".join("".join(names[x] for x in o.letters) for o in op.operands)
    fresh = [x for x in out if x not in op.operands[0].letters] if op.attributes.get("lookup") else []
    # Tokens in the slots of experts lie expert by expert: else each product that reads them makes a copy of its own.
    laid = (fresh[0], *(x for x in out if x != fresh[0])) if len(fresh) > 1 else out
    result = "".join(names[x] for x in laid)
    text = f'torch.einsum("{spelled}->{result}", {", ".join(o.text for o in op.operands)})'
    return arranged(f"{text}.contiguous()", laid, out) if len(fresh) > 1 else text


def _factor(text: str) -> str:
    return text if " @ " in text and called(text) != text and " + " not in text and " * " not in text else called(text)


def _view(op: Spelled) -> str:
    (o,), out = op.operands, op.letters
    gone = [n for n, x in enumerate(o.letters) if x not in out]
    text, letters = o.text, tuple(x for x in o.letters if x in out)
    if gone:
        over = f"({','.join(map(str, gone))},)" if letters else ""
        text = f"{called(text)}.{'mean' if op.mean else 'sum'}({over})"
    fresh = [x for x in out if x not in letters]
    text = arranged(text, letters, tuple(x for x in out if x in letters))
    if fresh:
        places = ", ".join("None" if x in fresh else ":" for x in out)
        sizes = ", ".join(op.sizes(x) if x in fresh else "-1" for x in out)
        text = f"{called(text)}[{places}].expand({sizes})"
    return text


def _lookup(op: Spelled) -> str:
    which = next(n for n, o in enumerate(op.operands) if o.role == "ids")
    ids, table = op.operands[which], op.operands[1 - which]
    classes = ids.letters[-1]
    if classes in table.letters and classes not in op.letters and len(table.letters) == 2:
        other = next(x for x in table.letters if x != classes)
        rows = f"F.embedding({ids.text}, {arranged(table.text, table.letters, (classes, other))})"
        bag = [n for n, x in enumerate(ids.letters[:-1]) if x not in op.letters]
        rows += f".sum({tuple(bag)})" if bag else ""
        return arranged(rows, tuple(x for x in (*ids.letters[:-1], other) if x in op.letters), op.letters)
    raise RenderError("a lookup that is no row of a table is not written in PyTorch yet")


def _scaled(op: Spelled, text: str, scale: Any) -> str:
    over, under = scale.as_numer_denom()
    if over == 1:
        number = op.number(under)
        return f"{called(text)} / {called(number)}"
    return f"{called(text)} * {called(op.number(scale))}"


def _add(op: Spelled) -> str:
    if "joined" in op.attributes:
        return f"torch.cat(({', '.join(o.text for o in op.operands)}), dim={op.attributes['joined']})"
    if "append" in op.attributes:
        ends = [*accumulate(map(len, op.letters))]
        rows = ", ".join(arranged(o.text, o.letters, op.letters) for o in op.operands)
        return f"torch.cat(({rows}), dim={next(n for n, end in enumerate(ends) if op.attributes['append'] < end)})"
    text = ""
    for sign, o in zip(op.attributes["signs"], op.operands, strict=True):
        part = arranged(o.text, o.letters, op.letters)
        text += f" {'+' if sign > 0 else '-'} {part}" if text else part if sign > 0 else f"-{called(part)}"
    return text


def _dimension(op: Spelled) -> int:
    """The axis of the operand that a map works along, from behind."""
    operand = op.operands[0]
    along = tuple(op.attributes.get("along", ()))
    for n, letter in enumerate(operand.letters):
        if letter == along:
            return n - len(operand.letters)
    raise RenderError(f"{op.kind} along several axes, or a part of one, is not written in PyTorch yet")


def _call(function: str) -> Callable[[Spelled], str]:
    return lambda op: f"{function}({op.operands[0].text})"


def _helper(
    name: str, along: bool = False, numbers: Callable[[Spelled], Iterable[str]] = lambda op: ()
) -> Callable[[Spelled], str]:
    """A function of the file's own, which takes ``numbers``, too; one ``along`` an axis works along the last."""

    def written(op: Spelled) -> str:
        if along:
            _last(op)
        op.helpers.add(name)
        return f"{name}({', '.join([*(o.text for o in op.operands), *numbers(op)])})"

    return written


def _last(op: Spelled) -> None:
    if _dimension(op) != -1:
        raise RenderError(f"{op.kind} along another axis than the last is not written in PyTorch yet")


def _layernorm(op: Spelled) -> str:
    """The library's function, with gain and bias where they follow."""
    _last(op)
    gain = "".join(f", {o.text}" for o in op.operands[1:])
    gain += ", None" * (3 - len(op.operands))
    return f"F.layer_norm({op.operands[0].text}, ({op.sizes(op.operands[0].letters[-1])},){gain}, EPSILON)"


def _batchnorm(op: Spelled) -> str:
    """The library's function, with gain and bias where they follow; statistics are those of the batch."""
    operand = op.operands[0]
    if (
        len(operand.letters) < 2
        or operand.letters[1] != op.letters[1]
        or operand.letters[1][0] in op.attributes["along"]
    ):
        raise RenderError("batchnorm over a channel that is cut into parts is not written in PyTorch yet")
    gain = "".join(f", {o.text}" for o in op.operands[1:]) + ", None" * (3 - len(op.operands))
    return f"F.batch_norm({operand.text}, None, None{gain}, True, 0.0, EPSILON)"


def _squared_error(op: Spelled) -> str:
    predicted, targets = op.operands
    return f'F.mse_loss({predicted.text}, {arranged(targets.text, targets.letters, op.letters)}, reduction="none")'


def _maxpool(op: Spelled) -> str:
    (operand,), along = op.operands, {*op.attributes["along"]}
    windows = [op.sizes(tuple(i for i in letter if i in along)) for letter in operand.letters[2:]]
    text = f"F.max_pool{len(windows)}d({operand.text}, ({', '.join(windows)},))"
    return text if len(op.letters) > 2 else f"{text}.flatten(1)"


def _rope(op: Spelled) -> str:
    _last(op)
    op.helpers.add("rope")
    u, *tables = op.operands
    if "features" in op.attributes:
        op.helpers.add("rope_part")
        names = [arranged(t.text, t.letters, u.letters) for t in tables]
        return f"rope_part({', '.join([u.text, *names])})"
    return f"rope({', '.join([u.text, *(arranged(t.text, t.letters, u.letters) for t in tables)])})"


def _crossentropy(op: Spelled) -> str:
    _last(op)
    logits, chosen = op.operands
    if op.constant != "onehot":
        op.helpers.add("cross_entropy")
        return f"cross_entropy({logits.text}, {chosen.text})"
    if len(logits.letters) < 3:
        return f'F.cross_entropy({logits.text}, {chosen.text}, reduction="none")'
    last = len(logits.letters) - 2
    return (f'F.cross_entropy({called(logits.text)}.flatten(0, {last}), {called(chosen.text)}.flatten(), '
            f'reduction="none").view_as({chosen.text})')  # fmt: skip


def _attention(op: Spelled) -> str:
    """The library's kernel: operands as batch, heads, positions and features; its result as the table has it."""
    roles = op.attributes["roles"]

    def seats(letters: Iterable[Letter], roles: Sequence[Letter] = roles) -> list[list[Letter]]:
        found = [sorted((x for x in letters if {*x} <= {*role}), key=lambda x: role.index(x[0])) for role in roles]
        if sum(map(len, found)) < len([*letters]):
            raise RenderError("an axis of heads and batch together is not written as one kernel")
        return found

    def seated(operand: Operand, roles: Sequence[Letter] = roles) -> str:
        places = seats(operand.letters, roles)
        text = arranged(operand.text, operand.letters, tuple(x for some in places for x in some))
        for at, some in enumerate(places):
            text = text if len(some) == 1 else f"{called(text)}.unsqueeze({at})" if not some else (
                f"{called(text)}.flatten({at}, {at + len(some) - 1})")  # fmt: skip
        return text

    batch, heads, (queries, keys), _ = roles
    of_scores = (batch, heads, (queries,), (keys,))
    masks = " + ".join(seated(operand, of_scores) for operand in op.operands[3:])
    options = [f"attn_mask={masks}"] if masks else []
    options += ["is_causal=True"] if op.attributes["causal"] else []
    options += ["dropout_p=self.dropout if self.training else 0.0"] if op.attributes["dropout"] else []
    scale = op.attributes["factor"]
    options += [f"scale={'1.0' if scale == 1 else op.number(scale)}"] if scale is not None else []
    options += ["enable_gqa=True"] if op.attributes["grouped"] else []
    text = f"{op.attends}({', '.join([*map(seated, op.operands[:3]), *options])})"
    places = seats(op.letters)
    for at, some in reversed([*enumerate(places)]):
        if not some:
            text = f"{text}.squeeze({at})"
        elif len(some) > 1:
            text = f"{text}.unflatten({at}, ({', '.join(map(op.sizes, some))}))"
    return arranged(text, tuple(x for some in places for x in some), op.letters)


def _scan(op: Spelled) -> str:
    """A loop over positions; the factor is the same along the axes that it lacks."""
    op.helpers.add("scan")
    value, factor = op.operands
    along = next(n for n, letter in enumerate(value.letters) if op.attributes["along"][0] in letter)
    alone = [n for n, letter in enumerate(factor.letters) if letter not in value.letters]  # axes of one
    text = called(factor.text) + "".join(f".select({n}, 0)" for n in reversed(alone)) if alone else factor.text
    shared = tuple(letter for letter in factor.letters if letter in value.letters)
    return f"scan({arranged(text, shared, value.letters)}, {value.text}, {along})"


def _convolution(op: Spelled) -> str:
    image, kernel = op.operands
    if "reach" in op.attributes:
        op.helpers.add("causal_conv")
        turned = kernel.letters[-1:] == image.letters[-1:]
        return f"causal_conv({image.text}, {called(kernel.text) + '.mT' if turned else kernel.text})"
    count, apart = len(image.letters) - 2, op.attributes.get("dilation", 1)
    every = [*zip(image.letters[2:], kernel.letters[2:], op.letters[2:], strict=True)]
    options = [f"dilation={op.number(apart)}"] if apart != 1 else []
    options += [f"groups={op.sizes(op.letters[1])}"] if image.letters[1] == kernel.letters[0] else []
    function, ending = f"F.conv{count}d({image.text}, {kernel.text}", "".join(f", {one}" for one in options)
    if all((op.size(w) - (op.size(t) - 1) * apart - op.size(p)).expand() == 0 for w, t, p in every):
        return f"{function}{ending})"
    if all(op.sizes(w) == op.sizes(p) for w, _, p in every):
        return f'{function}, padding="same"{ending})'
    op.helpers.add("padded")
    reach = "{0}" if apart == 1 else f"({{0}} - 1) * {called(op.number(apart))} + 1"
    shape = ", ".join(f"({op.sizes(w)}, {reach.format(called(op.sizes(t)))}, {op.sizes(p)})" for w, t, p in every)
    strides = ", ".join(f"{op.sizes(w)} // {called(op.sizes(p))}" for w, _, p in every)
    return f"F.conv{count}d(padded({image.text}, {shape}), {kernel.text}, stride=({strides},){ending})"


# One row an op kind: what is written for it. Maps without a row are unknown to PyTorch, which is told.
EMITTERS: Mapping[str, Callable[[Spelled], str]] = {
    "contraction": _contraction,
    "add": _add,
    "convolution": _convolution,
    "route": _helper("route", numbers=lambda op: (op.number(op.attributes["k"]), op.sizes(op.letters[-1]))),
    "scan": _scan,
    "onehot": lambda op: op.operands[0].text,
    "scale": lambda op: _scaled(op, op.operands[0].text, op.attributes["scale"]),
    "shift": lambda op: f"{called(op.operands[0].text)} + {called(op.number(op.attributes['number']))}",
    "minus": lambda op: f"{op.number(op.attributes['number'])} - {called(op.operands[0].text)}",
    "at_most": lambda op: f"torch.clamp({op.operands[0].text}, max={op.number(op.attributes['number'])})",
    "clamp": lambda op: "torch.clamp({0}, -{1}, {1})".format(op.operands[0].text, op.number(op.attributes["number"])),
    "mask": lambda op: _elementwise(op, "+"),
    "softmax": lambda op: f"torch.softmax({op.operands[0].text}, dim={_dimension(op)})",
    "sinksoftmax": _helper("sink_softmax", True),
    "topsoftmax": _helper("top_softmax", True, lambda op: [op.number(op.attributes["number"])]),
    "attention": _attention,
    "layernorm": _layernorm,
    "batchnorm": _batchnorm,
    "logsumexp": lambda op: f"torch.logsumexp({op.operands[0].text}, dim={_dimension(op)})",
    "maxpool": _maxpool,
    "squared_error": _squared_error,
    "rmsnorm": _helper("rms_norm", True),
    "rope": _rope,
    "crossentropy": _crossentropy,
    "relu": _call("torch.relu"),
    "softplus": _call("F.softplus"),
    "gelu": _call("F.gelu"),
    "silu": _call("F.silu"),
    "sigmoid": _call("torch.sigmoid"),
    "tanh": _call("torch.tanh"),
    "exp": _call("torch.exp"),
    "squared_relu": _helper("squared_relu"),
    "gelu_new": _helper("gelu_new"),
    "gelu_fast": _helper("gelu_fast"),
    "gelu_python": _helper("gelu_python"),
    "quick_gelu": _helper("quick_gelu"),
}

# Functions that PyTorch does not have, or not as they are read here; each stands in a file that needs it.
HELPERS: Mapping[str, str] = {
    "squared_relu": '''def squared_relu(u):
    """The square of relu."""
    return torch.relu(u) ** 2
''',
    "gelu_new": '''def gelu_new(u):
    """GELU by tanh, written out as many models have it."""
    return 0.5 * u * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (u + 0.044715 * torch.pow(u, 3.0))))
''',
    "gelu_fast": '''def gelu_fast(u):
    """GELU by tanh, written out with a rounded constant."""
    return 0.5 * u * (1.0 + torch.tanh(u * 0.7978845608 * (1.0 + 0.044715 * u * u)))
''',
    "gelu_python": '''def gelu_python(u):
    """GELU by the error function, written out."""
    return u * 0.5 * (1.0 + torch.erf(u / math.sqrt(2.0)))
''',
    "quick_gelu": '''def quick_gelu(u):
    """GELU by a sigmoid."""
    return u * torch.sigmoid(1.702 * u)
''',
    "scan": '''def scan(a, u, along):
    """At each position u, and a times the result one position before."""
    h, found = 0.0, []
    for factor, new in zip(a.expand_as(u).unbind(along), u.unbind(along)):
        h = factor * h + new
        found.append(h)
    return torch.stack(found, along)
''',
    "causal_conv": '''def causal_conv(u, w):
    """Each channel with taps of its own, which look back: zeros stand before the first position."""
    rows, (channels, taps) = u.flatten(0, -3) if u.dim() > 2 else u[None], w.shape
    made = F.conv1d(rows.mT, w[:, None], padding=taps - 1, groups=channels)
    return made[..., : u.shape[-2]].mT.reshape(u.shape)
''',
    "sink_softmax": '''def sink_softmax(u):
    """Softmax over the last axis and one score more, 0, whose weight is left out."""
    u = torch.cat([u, u.new_zeros(()).expand(*u.shape[:-1], 1)], dim=-1)
    return torch.softmax(u - u.max(dim=-1, keepdim=True).values, dim=-1)[..., :-1]
''',
    "top_softmax": '''def top_softmax(u, k):
    """Softmax over the k largest of the last axis; the others are 0."""
    largest, places = u.topk(k, dim=-1)
    return torch.zeros_like(u).scatter(-1, places, torch.softmax(largest, dim=-1))
''',
    "rms_norm": '''def rms_norm(u):
    """The last axis divided by its root mean square."""
    return u * torch.rsqrt(u.pow(2).mean(-1, keepdim=True) + EPSILON)
''',
    "rope": '''def rope(u, cos, sin):
    """Pairs of features (i and i + half) turned by an angle that grows with the position."""
    one, two = u.chunk(2, dim=-1)
    return u * cos + torch.cat([-two, one], dim=-1) * sin
''',
    "rope_part": '''def rope_part(u, cos, sin):
    """The first features turned by an angle, as many as there are angles; the others as they are."""
    turned, rest = u.split([cos.shape[-1], u.shape[-1] - cos.shape[-1]], dim=-1)
    return torch.cat([rope(turned, cos, sin), rest], dim=-1)
''',
    "angles": '''def angles(positions, features):
    """The angles of rotary positions: pair i turns by 10000 ** (-2 i / features) from one position to the next."""
    pairs = torch.arange(features) % (features // 2)
    return torch.outer(torch.arange(positions), 10000.0 ** (-2.0 * pairs / features))
''',
    "cross_entropy": '''def cross_entropy(u, targets):
    """The cross-entropy of logits against given shares of the classes."""
    return torch.logsumexp(u, -1) - (u * targets).sum(-1)
''',
    "route": '''def route(gates, k, slots):
    """1 where a token is in a slot of an expert: its k largest gates, first come first served in each sequence."""
    with torch.no_grad():
        chosen = (gates >= gates.topk(k, dim=-1).values[..., -1:]).to(gates.dtype)
        place = chosen.cumsum(-2) - 1
        free = torch.arange(slots, dtype=gates.dtype)
        return chosen[..., None] * (place[..., None] - free == 0).to(gates.dtype)
''',
    "padded": '''def padded(u, *shapes):
    """Zeros around the last axes, so that a kernel of so many taps finds so many places; the odd zero stands behind."""
    sides = []
    for window, taps, places in reversed(shapes):
        total = max((places - 1) * (window // places) + taps - window, 0)
        sides += [total // 2, total - total // 2]
    return F.pad(u, sides)
''',
}
