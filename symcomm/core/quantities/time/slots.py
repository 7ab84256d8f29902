"""The time of a step from those of its regions: the slots of a pipeline, or one pass after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from operator import attrgetter

from symcomm.core.derivation import Condition, Numbers, Witness
from symcomm.core.form import Form, Largest, Num, Ratio, Smallest, Total, combined, names, negative, num, product
from symcomm.core.program import pipeline
from symcomm.core.program.closed_forms import ClosedForm
from symcomm.core.program.schedules import find
from symcomm.core.program.uneven import APART, WHOLE, Makespan, makespan
from symcomm.core.quantities.counting.load import Load
from symcomm.core.quantities.time.region_time import WORK, RegionTime
from symcomm.core.quantities.time.term_texts import need
from symcomm.core.quantities.time.terms import SECOND, TimeWriter
from symcomm.core.quantities.witnesses import between_tokens, in_turn, number
from symcomm.core.records import dataclass, replace
from symcomm.core.units import ONE
from symcomm.core.worksheets.runs import queued


@dataclass(frozen=True)
class Run:
    """How a schedule is timed: in slots of a whole microbatch, or pieces of work apart."""

    said: str
    sizes: Mapping[str, Form]
    letters: str = ""  # of the pieces of work
    slots: ClosedForm | None = None  # the number of slots
    share: Form = Num(Fraction(1))  # a rank's share of the layers, in stages


_NONE = Num(Fraction(0), SECOND)
_REST = (
    "The rest of this transfer after the backward pass. Calls run one after another: without a gap from the first "
    "bucket on, or the last one starts when backward ends. The later end counts: in between it grows evenly from "
    "bucket to bucket."
)


add_times = partial(combined, Total)


class PipelineTime:
    """Writes the time of all microbatches and of the end of the batch, of the kinds of stages that there are."""

    def __init__(
        self, writer: TimeWriter, found: Sequence[RegionTime], kinds: Mapping[str, pipeline.RankShare], run: Run,
        p: Form, between: Load, buckets: Form | None = None,
    ) -> None:  # fmt: skip
        self.writer, self.work, self.found, self.kinds, self.run = writer, writer.work, found, kinds, run
        self.shown = {**run.sizes, "p": p}  # the sizes as they are written
        self.where = list(dict.fromkeys(condition for held in kinds.values() for condition in held.where))
        self.notes: list[str] = []
        self.slots: Form = run.sizes["m"]
        self.passes: Form | None = None  # all microbatches, where stages are timed apart
        self.timed: dict[tuple[str, str], Form] = {}  # the slot of a piece of work on a kind of stage, if it sends
        self.ordered = False
        self.buckets = buckets
        self.reducing: Form | None = None  # the calls of all buckets
        ties = replace(between, calls=tuple((p, c) for p, c in between.calls if c.kind != "send"))
        sends = replace(between, calls=tuple((p, c) for p, c in between.calls if c.kind == "send"))
        back = "DB"[run.letters == APART]
        apart = {"F": sends.of("forward"), back: sends.of("backward")}
        self.between: Form | None = None  # what a stage between two others sends of each microbatch
        self.hops: Form | None = None  # the messages on a token's way through all stages
        self.sent: dict[str, Form] = {}
        for letter, part in apart.items():
            if part.calls:
                self.sent[letter] = need(writer.terms(part, f"_send,{letter}").network, "the messages of a pipeline")
        self.never = {("F", "last"), (back, "first"), ("F", str(len(kinds))), (back, "1")}  # what they make stays there
        self.tie = writer.terms(ties, "_tie").network if ties.calls else None

    # -- one stage -------------------------------------------------------------------------------

    def repetitions(self, kind: str, what: Callable[[RegionTime], Form | None]) -> list[tuple[Form, Form]]:
        """The work of a stage in the loops over its layers: how often, and how long it takes each time."""
        found: list[tuple[Form, Form]] = []
        held, chunks = self.kinds[kind], bool(self.run.letters) and self.run.share != num(1)
        for one in self.found:
            if kind != "only" and one.region.name not in held.regions:
                continue
            count, form, region = held.times(one.region), what(one), one.region
            if chunks:
                count = Ratio(count, self.run.share) if region.times else num(1)
            first = what(one.first) if one.first is not None else form
            if first is not None and first != form:
                found.append((num(1), first))
                count = Total((count, num(-1)))
            found += [(count, form)] if form is not None else []
        return found

    def together(self, name: str, kind: str, what: Callable[[RegionTime], Form | None], text: str) -> Form | None:
        """The time of the regions of a stage, one after the other, each as often as it occurs there."""
        mine = self.repetitions(kind, what)
        terms = [product(count, form) for count, form in mine]
        if len(terms) == 1 and mine[0][0] == num(1) and kind == "only":
            return terms[0]
        return self.work.combine(name, add_times(terms), SECOND, "repeat", text) if terms else None

    def slot(self, name: str, time: Form, sent: Form | None) -> Form:
        """The time of a stage for a piece of work, with its message."""
        if sent is None:
            return time
        overlaps, both = self.writer.setting.accounting.time == "overlap", (time, sent)
        form = Largest(both) if overlaps else Total(both)
        text = "A stage computes one microbatch and sends what it made"
        text += " at the same time." if overlaps else ", one after the other."
        return self.work.combine(name, form, SECOND, "slot of the pipeline", text)

    def ends(self, name: str, what: str) -> Form | None:
        """The end of the batch: of the stage that it takes longest, and what stages add up between them."""
        each = [self.together(f"{name},{kind}" if len(self.kinds) > 1 else name, kind, attrgetter(what),
                              "The end of the batch, all that a stage holds.") for kind in self.kinds]  # fmt: skip
        known = list(dict.fromkeys(form for form in each if form is not None))
        tie = [] if self.tie is None else [self.tie]
        longest = [combined(Largest, known)] if known else []
        return add_times([*longest, *tie]) if longest or tie else None

    # -- all stages ------------------------------------------------------------------------------

    def step(self, ordered: bool) -> Form:
        """The time of a step; ``ordered`` says that no stage holds more than the first one and the last one do."""
        self.ordered = ordered
        total = self.apart() if self.run.letters else self.even()
        total += [self.left(self.buckets)] if self.buckets is not None else []
        end = self.ends("t_ends", "end")
        total += [end] if end is not None else []
        text = "All microbatches" + (", then the end of the batch." if end is not None else ".")
        return self.work.combine("T_step", add_times(total), SECOND, "add", text)

    def stream(self, decodes: bool, back: Form | None, what: str = "work") -> Form:
        """The time of a forward pass of groups of sequences that follow one another through the stages.

        Where they decode, it is the time between two tokens of a sequence: a group's next token starts at the first
        stage when its last one is there, behind a message ``back``. Then the pipeline never drains. ``what`` is there
        of a stage: its work, that ``alone``, or the ``network``.
        """
        work, kinds, p, groups = self.work, [*self.kinds], self.shown["p"], self.run.sizes["m"]
        named = {"work": "t_{}", "alone": "T_alone,{}", "network": "T_network,{}"}[what].format
        often, sent = {"only": p, "middle": Total((p, num(-2)))}, self.sent.get("F")
        sent, back = (None, None) if what == "alone" else (sent, back)
        stages: list[tuple[Form, Form]] = []
        slots: list[Form] = []
        for kind in kinds:
            tag, last = f",{kind}" if len(kinds) > 1 else "", kind in ("last", str(len(kinds)))
            form = self.together(named(f"stage{tag}"), kind, _piece(what, ""), f"{_stage_said(kind)}, one group.")
            stages.append((often.get(kind, num(1)), _NONE if form is None else form))
            both = [one for one in (form, back if last else sent) if one is not None]
            if form is not None and what != "network":
                both = [self.slot(named(f"slot{tag}"), form, back if last else sent)]
            slots += [add_times(both)] if both else []
        hops = [] if sent is None else [(Total((p, num(-1))), sent), *([(num(1), back)] if back is not None else [])]
        text = "A token crosses one stage after the other" + (
            ", with a message behind each." if back is not None else ", with a message between two." if hops else "."
        )
        parts = [(n, form) for n, form in stages + hops if form != _NONE]
        way = work.combine(named("way"), add_times([form if n == num(1) else product(n, form) for n, form in parts]),
                           SECOND, "one group", text)  # fmt: skip
        slots = [*dict.fromkeys(slots)]
        slow = slots[0] if len(slots) == 1 else work.combine(
            named("slow"), Largest(tuple(slots)), SECOND, "slowest stage", "No two groups are on a stage at once."
        )  # fmt: skip
        if what == "work":
            self.hops = add_times([product(n, form) for n, form in hops]) if hops else None
            if "middle" in kinds:
                self.where.append(Condition(self.run.sizes["p"], ">=", num(2)))
                self.notes.append("The stages are at least two; the first and the last one hold more than layers.")
        apart = self.writer.setting.accounting.time == "overlap" and what != "network"
        followed = partial(self._in_turn, stages, sent, back, decodes, apart)
        name = {"alone": "T_alone", "network": "T_network"}.get(what, "t_gap" if decodes else "T_step")
        if decodes:
            return work.define(name, Largest((way, product(groups, slow))), SECOND, "steady state",
                               "A group waits until its last token is there, or for its turn on the slowest stage.",
                               witness=followed)  # fmt: skip
        text = "Each group behind the first one is later by the slowest stage."
        behind = product(Total((groups, num(-1))), slow)
        return work.define(name, Total((way, behind)), SECOND, "in turn", text, witness=followed)

    def _in_turn(
        self, stages: Sequence[tuple[Form, Form]], sent: Form | None, back: Form | None, decodes: bool, apart: bool,
        numbers: Numbers,
    ) -> Fraction:  # fmt: skip
        """The groups one by one, stage by stage and message by message; ``apart`` a stage computes beside a message."""
        each = [number(form, numbers) for n, form in stages for _ in range(int(number(n, numbers)))]
        hops = [*(number(sent, numbers) for _ in each[1:] if sent is not None)]
        hops += [number(back, numbers) if back is not None else Fraction(0)]
        if apart:
            each = [one for pair in zip(each, hops, strict=True) for one in pair] if sent is not None else each
        elif sent is not None:
            each = [a + b for a, b in zip(each, hops, strict=True)]
        groups = int(number(self.run.sizes["m"], numbers))
        return between_tokens(each, groups) if decodes else in_turn(each, groups, 1)[0]

    def left(self, count: Form) -> Form:
        """The reduction of gradients, in so many buckets, that is left when the last backward pass has ended."""
        work, overhead = self.work, self.writer.machine.call_overhead
        backward = self.together("t_backward", "only", attrgetter("backward"), "The last backward pass of a rank.")
        transfer = self.together("t_transfer", "only", attrgetter("reduced"), "The transfer of a rank's gradients.")
        assert backward is not None
        assert transfer is not None
        assert overhead is not None
        text = "A bucket holds its share of the gradients, and its call costs an overhead."
        call = work.combine("t_call", Total((overhead, Ratio(transfer, count))), SECOND, "buckets", text)
        text = "The gradients of a bucket are there after its share of the last backward pass."
        each = work.combine("t_bucket", Ratio(backward, count), SECOND, "buckets", text)
        self.reducing = product(count, call)
        ends = Total((each, self.reducing)), Total((backward, call))
        return work.define(
            "t_left", Total((Largest(ends), negative(backward))), SECOND, "buckets", _REST,
            witness=lambda n: queued([(number(each, n), number(call, n))] * int(number(count, n))),
        )  # fmt: skip

    def even(self) -> list[Form]:
        """The slots of stages that are alike."""
        work, run, v = self.work, self.run, self.run.sizes["v"]
        slot = self.together("t_stage", "only", lambda one: one.work.get(""), "All layers of a rank, one microbatch.")
        assert slot is not None
        if run.slots is not None:
            self.where += run.slots.said(run.sizes).conditions
            if v != num(1):
                text = "The layers of a rank are in chunks."
                slot = work.combine("t_chunk", Ratio(slot, v), SECOND, "chunks", text)
            text = "The last stage gets its first microbatch after p - 1 slots."
            self.slots = work.define("n_slots", run.slots.said(self.shown).form, ONE, run.said, text,
                                     witness=self.followed([num(1) for _ in WHOLE], WHOLE, slots=2))  # fmt: skip
        self.between = self.steady()
        if self.sent and names(run.sizes["p"]):  # one stage sends nothing
            self.where.append(Condition(run.sizes["p"], ">=", num(2)))
        whole = self.slot("t_slot", slot, self.between)
        if self.between is not None:
            self.timed["", "only"] = whole
        if not any(one.last for one in self.found):
            if not self.sent or v != num(1):
                return [product(self.slots, whole)]
            ends = [self.slot(f"t_slot,{way}", slot, self.sent.get(way)) for way in "FD"]  # on the first, on the last
            self.timed |= {("F", "only"): ends[0], ("D", "only"): ends[1]}
            return [*([] if self.slots == num(2) else [product(Total((self.slots, num(-2))), whole)]), *ends]
        stage = self.together("t_stage,last", "only", lambda one: one.last or one.work.get(""),
                              "All layers of a rank, the last microbatch.")  # fmt: skip
        assert stage is not None
        last = self.slot("t_slot,last", stage, self.between)
        return [*([product(Total((self.slots, num(-1))), whole)] if self.slots != num(1) else []), last]

    def steady(self) -> Form | None:
        """The bytes that a rank sends for each microbatch, to both its neighbours, or of two ranks to the other one."""
        sent, p, chunks = tuple(self.sent.values()), self.run.sizes["p"], self.run.sizes["v"] != num(1)
        if len(sent) < 2 or (p == num(2) and not chunks):
            return Largest(sent) if len({*sent}) > 1 else sent[0] if sent else None
        form: Form = Total(sent)
        if not chunks and not isinstance(p, Num):
            neighbours = Smallest((num(1), Total((self.shown["p"], num(-2)))))
            form = Total((Largest(sent), product(neighbours, Smallest(sent))))

        def counted(numbers: Numbers) -> Fraction:
            each = [number(one, numbers) for one in sent]
            return sum(each, Fraction(0)) if chunks or number(p, numbers) > 2 else max(each)

        return self.work.define("t_send", form, SECOND, "messages", "Bytes sent by the rank with the most neighbours.",
                                witness=counted)  # fmt: skip

    def times(self, name: str, what: str, messages: bool) -> dict[tuple[str, str, bool], Form]:
        """The time of each piece of work on each kind of stage, first of those that send what they make."""
        found: dict[tuple[str, str, bool], Form] = {}
        for letter in self.run.letters:
            for kind in self.kinds:
                text = f"{_stage_said(kind)}, one microbatch, {WORK[letter]}."
                form = self.together(f"{name}{letter},{kind}", kind, _piece(what, letter), text)
                form = form or _NONE
                sent = self.sent.get(letter) if messages and (letter, kind) not in self.never else None
                slot = self.slot(f"{name}slot,{letter},{kind}", form, sent) if what != "network" else (
                    form if sent is None else Total((form, sent)))  # fmt: skip
                found |= {(letter, kind, False): slot, (letter, kind, True): form}
        sends = messages and bool(self.sent)
        order = [(letter, kind, alone) for letter in self.run.letters for alone in (False, True)[: 1 + sends]
                 for kind in self.kinds]  # fmt: skip
        return {at: found[at] for at in order}

    def makespan(self, times: Mapping[tuple[str, str, bool], Form], tails: Sequence[Form] = ()) -> ClosedForm:
        """The time of all microbatches, under the schedule."""
        run, ordered = self.run, self.ordered and "middle" in self.kinds
        made = makespan(run.said, run.letters, len(self.kinds), run.sizes, [*times.values()], ordered, tails,
                        any(alone for *_, alone in times), self.shown)  # fmt: skip
        self.where += [condition for condition in made.conditions if condition not in self.where]
        return made

    def apart(self) -> list[Form]:
        """The longest way through the events of a schedule, its pieces of work timed apart."""
        letter, times = self.run.letters[-1], self.times("t_", "work", True)
        self.timed = {(piece, kind): form for (piece, kind, alone), form in times.items() if not alone}
        tails: list[Form] = []
        if any(one.last is not None for one in self.found):
            for kind in self.kinds:
                text = f"{_stage_said(kind)}, the last microbatch."
                last = self.together(
                    f"t_{letter},{kind},last", kind, lambda one: one.last or one.work.get(letter), text
                )
                assert last is not None
                alone = (letter, kind) in self.never
                sent = None if alone else self.sent.get(letter)
                last = self.slot(f"t_slot,{letter},{kind},last", last, sent)
                usual = times[letter, kind, False]
                form = Total((last, negative(usual)))
                tails.append(self.work.combine(f"t_more,{kind}", form, SECOND, "reduction of gradients",
                                               "Extra time of the last microbatch."))  # fmt: skip
        found = self.makespan(times, tails)
        text = f"The longest path through the events; {found.cases} simulated sizes agree."
        if not found.cases:
            text = "The events are followed one by one: the sizes, then the times of the stages for each piece of work."
        if "+" in find(self.run.said).kinds:
            self.notes.append("A forward and a backward that overlap are taken to last as long as one after the other.")
        if len(self.kinds) == 3 and "middle" in self.kinds:
            self.notes.append("The stages are at least two; the first and the last one hold more than layers.")
        self.passes = self.work.define("T_pipeline", found.form, SECOND, self.run.said, text,
                                       witness=self.followed([*times.values(), *tails], tails=bool(tails)))  # fmt: skip
        return [self.passes]

    def followed(
        self, times: Sequence[Form], letters: str | None = None, slots: int = 1, tails: bool = False
    ) -> Witness:
        """The events of a batch one by one, at the times of its pieces of work."""
        run, kinds = self.run, 1 if letters else len(self.kinds)
        sends = len(times) - tails * kinds > kinds * len(letters or run.letters)
        rule = Makespan(run.said, SECOND, run.said, letters or run.letters, kinds, tails, sends)

        def makespan(numbers: Numbers) -> Fraction:
            given = (*(run.sizes[size] for size in "pmv"), *times)
            return rule.number(tuple(number(form, numbers) for form in given)) / slots

        return makespan

    # -- parts of the time -----------------------------------------------------------------------

    def part(self, what: str) -> Form | None:
        """The step of a part of what is done: ``alone``, if nothing had to be sent, or all that the ``network`` has."""
        name = f"T_{what}"
        rule, text = {
            "alone": ("without the network", "The step if nothing had to be sent."),
            "network": ("all that is sent", "All calls of the step, as they follow one another on one rank."),
        }[what]
        sent = self.sent if what == "network" else {}
        end = self.ends(f"{name},end", "end_network") if what == "network" else None
        terms: list[Form] = []
        followed: Witness | None = None
        if any(getattr(one, what) for one in self.found) or sent:
            if self.run.letters:
                times = self.times(f"{name},", what, bool(sent))
                terms, followed = [self.makespan(times).form], self.followed([*times.values()])
            else:
                v = self.run.sizes["v"]
                rounds = self.slots if v == num(1) else Ratio(self.slots, v)
                parts = self.repetitions("only", _piece(what, ""))
                terms = [product(product(rounds, count), form) for count, form in parts]
                apart = sent and v == num(1) and not any(one.last for one in self.found)
                often = Total((self.slots, num(-2))) if apart else self.slots
                more = [(often, self.between)] if sent and self.between is not None and often != num(0) else []
                more += [(num(1), form) for form in sent.values() if apart]
                terms += [product(count, form) for count, form in more]
        if what == "network" and self.reducing is not None:
            end = self.reducing if end is None else Total((self.reducing, end))
        terms += [end] if end is not None else []
        if followed is None:
            return self.work.combine(name, add_times(terms), SECOND, rule, text) if terms else None

        def counted(numbers: Numbers) -> Fraction | int:
            return followed(numbers) + (number(end, numbers) if end is not None else 0)

        return self.work.define(name, add_times(terms), SECOND, rule, text, witness=counted)


def _piece(what: str, letter: str) -> Callable[[RegionTime], Form | None]:
    """The time of a piece of work: ``work``, ``alone`` or ``network``."""
    return lambda one: getattr(one, what).get(letter)


def _stage_said(kind: str) -> str:
    said = {"first": "The first stage", "middle": "A stage between", "last": "The last stage", "only": "A stage"}
    return said.get(kind, f"Stage {kind}")
