"""The units that students write behind a number, in their many spellings."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

from symcomm.core.answers import UnreadError
from symcomm.core.errors import SymcommError
from symcomm.core.units import COUNTS, ONE, Quantity, Unit

_DECIMAL = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "ki": 10}
_SMALL = {"m": -3, "u": -6, "μ": -6, "n": -9, "p": -12}
_LONG = {
    "kilo": 3, "mega": 6, "giga": 9, "tera": 12, "peta": 15, "exa": 18, "milli": -3, "micro": -6, "mikro": -6,
    "nano": -9,
}  # fmt: skip
_LONG_BINARY = {"kibi": 10, "mebi": 20, "gibi": 30, "tebi": 40, "pebi": 50}
_THINGS = ("word", "element", "token", "layer", "stage", "iteration", "step", "message", "link")
_BASES: dict[str, tuple[str, Fraction]] = {
    **{spelled: (name, Fraction(1)) for name in _THINGS for spelled in (name, f"{name}s")},
    "iter": ("iteration", Fraction(1)),
    **dict.fromkeys(("B", "byte", "bytes", "Byte", "Bytes"), ("byte", Fraction(1))),
    **dict.fromkeys(("bit", "bits", "Bit", "Bits"), ("byte", Fraction(1, 8))),
    **dict.fromkeys(("FLOP", "FLOPs", "flop", "flops", "Flop", "Flops"), ("FLOP", Fraction(1))),
    **dict.fromkeys(("op", "ops", "OP", "operation", "operations"), ("FLOP", Fraction(1))),
    **dict.fromkeys(("FLOPS", "FLOPs/s", "Flop/s"), ("FLOP/second", Fraction(1))),
    **dict.fromkeys(("parameter", "parameters", "param", "params", "weight", "weights"), ("parameter", Fraction(1))),
    **dict.fromkeys(("sample", "samples", "sequence", "sequences"), ("sample", Fraction(1))),
    **dict.fromkeys(("GPU", "GPUs", "gpus", "gpu", "device", "devices", "rank", "ranks", "worker", "workers"),
                    ("device", Fraction(1))),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), ("second", Fraction(1))),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), ("second", Fraction(60))),
    **dict.fromkeys(("h", "hour", "hours"), ("second", Fraction(3600))),
    **dict.fromkeys(("day", "days"), ("second", Fraction(86_400))),
    **dict.fromkeys(("OPS", "OPs/s"), ("FLOP/second", Fraction(1))), "Bps": ("byte/second", Fraction(1)),
    **dict.fromkeys(("Token", "Tokens"), ("token", Fraction(1))),
    **{f"{one}{s}": ("", Fraction(1)) for s in ("", "s") for one in ("head", "block", "bucket", "chunk", "expert")},
    "J": ("watt*second", Fraction(1)), "Hz": ("cycle/second", Fraction(1)), "cent": ("", Fraction(100)),
    **dict.fromkeys(("Sekunde", "Sekunden", "Sek"), ("second", Fraction(1))),
    **dict.fromkeys(("Minute", "Minuten"), ("second", Fraction(60))),
    **dict.fromkeys(("Stunde", "Stunden"), ("second", Fraction(3600))),
    **dict.fromkeys(("Tag", "Tage"), ("second", Fraction(86_400))),
    **dict.fromkeys(("Operationen", "Rechenoperationen"), ("FLOP", Fraction(1))),
    **dict.fromkeys(("Element", "Elemente"), ("element", Fraction(1))), "Parameter": ("parameter", Fraction(1)),
    "Prozent": ("", Fraction(1, 100)),
}  # fmt: skip
# Words without a space between them, and how they are typed elsewhere; 每 stands before what a rate is for.
CHINESE = {
    "毫秒": "ms", "微秒": "us", "纳秒": "ns", "秒": "s", "分钟": "min", "小时": "h", "天": "days",
    "千字节": "kB", "兆字节": "MB", "吉字节": "GB", "太字节": "TB", "字节": "bytes", "比特": "bits",
    "个参数": "parameters", "参数": "parameters", "元素": "elements", "次浮点运算": "FLOP", "浮点运算": "FLOP",
    "个": " ", "块": " ", "台": " ",
    "次运算": "ops", "次每秒": "ops/s", "次/秒": "ops/s", "万亿": "*10^12", "亿": "*10^8", "万": "*10^4", "每": "/",
}  # fmt: skip
_PREFIXED = (
    "B", "byte", "bytes", "Byte", "Bytes", "bit", "bits", "Bit", "Bits", "FLOP", "FLOPs", "FLOPS", "flop", "flops",
    "op", "ops", "OP", "OPS", "Bps", "J", "Flop", "Flops", "word", "words", "element", "elements", "s", "sec", "second",
    "seconds", "Hz", "parameters", "params", "tokens", "Sekunde", "sekunde", "Sekunden", "sekunden",
)  # fmt: skip
_LOWER = {f"{p.lower()}b": 10**n for p, n in _DECIMAL.items() if p} | {
    f"{p.lower()}b": 2**n for p, n in _BINARY.items()
}
# A count may have a letter for its size: 3.4B parameters.
COUNTED = {
    "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "bn": 10**9, "Bn": 10**9, "G": 10**9, "T": 10**12,
    "thousand": 10**3,
    "million": 10**6, "millions": 10**6, "billion": 10**9, "billions": 10**9, "trillion": 10**12, "Mio": 10**6,
    "Tausend": 10**3, "Millionen": 10**6, "Milliarden": 10**9, "Milliarde": 10**9, "Mrd": 10**9, "Billionen": 10**12,
}  # fmt: skip
_TIMES = frozenset({"device", "iteration", "layer", "step", "stage", "message", "link"})  # how often
_COUNTS = _TIMES | {"word", "parameter", "token", "element", "sample"}


@cache
def measure(word: str) -> tuple[Fraction, Unit, int] | None:
    """The worth of a unit, the unit, and the power of its prefix (GB and GiB: 3); None for what is no unit.

    Raises ``UnreadError`` for ``Gb``, which may be bits or bytes.

    >>> measure("GiB")[0] == 2**30, str(measure("ms")[1]), measure("D")
    (True, 's', None)
    >>> str(measure("watt")[1]), measure("W"), measure("kW")
    ('watt', None, None)
    """
    if word in _BASES:
        name, worth = _BASES[word]
        return worth, Unit.parse(name) if name else ONE, 0
    if word in ("%", "percent"):
        return Fraction(1, 100), ONE, 0
    if word.lower() in _LOWER and word in (word.lower(), word.upper()) and (word.islower() or len(word) == 3):
        word = word.lower()
        return Fraction(_LOWER[word]), Unit.parse("byte"), _power(word[0])
    for base in _PREFIXED:
        prefix = word[: -len(base)] if word.endswith(base) else ""
        if not prefix:
            continue
        name, worth = _BASES.get(base) or _BASES[base.capitalize()]
        unit = Unit.parse(name)
        if (bits := _BINARY.get(prefix) or _LONG_BINARY.get(prefix.lower())) is not None and name == "byte":
            return worth * 2**bits, unit, bits // 10
        power = (_SMALL if name == "second" else _DECIMAL).get(prefix, _LONG.get(prefix.lower()))
        if power is not None:
            return worth * Fraction(10) ** power, unit, max(0, power // 3)
    if len(word) in (2, 3) and word.endswith("b") and word[:-1] in _DECIMAL | _BINARY:
        raise UnreadError(f"{word}: bits or bytes? write {word}it or {word[:-1]}B")
    if word.endswith("W"):  # weights or a bandwidth: what is printed is the word, watt
        return None
    try:  # whatever is printed can be typed
        printed = Quantity.parse(f"1 {word}")
    except SymcommError:
        return None
    return printed.value, printed.unit, 0


def _power(letter: str) -> int:
    return next(n // 3 for p, n in _DECIMAL.items() if p.lower() == letter)


def counts(unit: Unit) -> bool:
    """Whether a unit counts things that may be given in thousands, millions or billions.

    >>> counts(Unit.parse("parameter")), counts(Unit.parse("byte"))
    (True, False)
    """
    return len(unit.powers) == 1 and unit.powers[0][1] == 1 and unit.powers[0][0] in _COUNTS


def uncounted(unit: Unit, asked: Unit = ONE, several: bool = False) -> Unit | None:
    """The unit without the things that are counted in it: 2 bytes/parameter * 3 parameters are bytes.

    The unit that is ``asked`` for stays, and so does a count alone: 3 layers. In a product of ``several`` quantities
    layers or devices only say how often, and go: 2 D^2 * 3 layers. None where nothing is left.

    >>> str(uncounted(Unit.parse("byte/parameter"))), str(uncounted(Unit.parse("parameter")))
    ('B', 'parameter')
    >>> uncounted(Unit.parse("layer"), several=True)
    """
    kept = tuple((base, power) for base, power in unit.powers if base not in _COUNTS or base in dict(asked.powers))
    if kept or unit == ONE:
        return Unit(kept)
    if several and {base for base, _ in unit.powers} <= _TIMES:
        return None
    return Unit(tuple((base, power) for base, power in unit.powers if power > 0 or base not in _TIMES))


def same_kind(unit: Unit, asked: Unit, calculated: bool = False) -> bool:
    """Whether a unit measures what a question asks for; words are elements, and a plain number counts anything.

    One that was calculated may lack what is counted: 1.41 GHz * 1024 are FLOP/s, and TB / GB a number of devices.

    >>> same_kind(Unit.parse("Hz"), Unit.parse("FLOP/s")), same_kind(Unit.parse("Hz"), Unit.parse("FLOP/s"), True)
    (False, True)
    """
    if calculated and (unit == ONE or _amount(unit) != ONE) and _amount(unit) == _amount(asked):
        return True
    either = {unit, asked}
    loose = {Unit.parse("word"), Unit.parse("element")}
    return (
        unit == asked
        or either == {Unit.parse("FLOP"), Unit.parse("operation")}
        or (unit in loose and asked in loose | {Unit.parse("parameter")})
        or (asked == ONE and counts(unit))
    )


def _amount(unit: Unit) -> Unit:
    return Unit(tuple(one for one in unit.powers if one[0] not in COUNTS | {"cycle", "FMA", "SM"}))
