"""The heading of an answer, its question, and why it is so: a row a quantity in each language.

The rows stand in ``templates/questions``, by the name of the quantity and, behind it, the choices that the row is for:
of the rows whose choices were made, the one with the most of them counts. What stands in brackets is left out where
its slots are empty.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

from symcomm.core.printing import short
from symcomm.core.records import dataclass
from symcomm.documents.render.document import Answer
from symcomm.documents.render.environment import TEMPLATES

_SLOT = re.compile(r"\{(\w+)\}")
_NAME = re.compile(r"`\{(\w+)\}`")
_COUNT = re.compile(r"^(?:[A-Z]\w+ )?\d+(?:\.\d+)*\.? ")
_MAYBE = re.compile(r"\[([^\[\]]*)\]")


@dataclass(frozen=True)
class Wording:
    """The heading of an answer, its question, and one sentence why."""

    heading: str
    question: str = ""
    why: str = ""


@dataclass(frozen=True, eq=False)
class Questions:
    """The rows of one language, and its words for choices and strategies."""

    rows: Mapping[str, str]
    words: Mapping[str, str]

    def row(self, answers: Sequence[Answer]) -> Wording:
        """The row of an answer, or of several that are one table, with their options put in.

        >>> from symcomm.core.accounting import Accounting
        >>> len(questions("en").rows) > 100
        True
        """
        first = answers[0]
        facts = tuple(option for option in first.options if all(option in one.options for one in answers))
        names = tuple(convention.name for convention in first.derivation.conventions)
        return self._row(first.asked, facts, names, first.derivation.title)

    @lru_cache(maxsize=4096)  # noqa: B019  (one a language, for good)
    def _row(
        self, asked: str, options: tuple[tuple[str, str], ...], conventions: tuple[str, ...], title: str
    ) -> Wording:
        facts = dict(options)
        made = {*facts.values(), *conventions}
        keys = [key for key in self.rows if key.split(" ")[0] == asked and made.issuperset(key.split(" ")[1:])]
        if not keys:
            return Wording(title, self.words["find"].replace("{}", title))
        texts = self.rows[max(keys, key=lambda key: key.count(" "))].split("|")
        return Wording(*(self._filled(text.strip(), facts) for text in texts))

    def question(self, answers: Sequence[Answer]) -> str:
        """How the question of some answers is asked, where the document's own words do not."""
        row = self.row(answers)
        text = row.question or self.words["find"].replace("{}", row.heading)
        labels = [one.label for one in answers if one.label and one.label.lower() not in text.lower()]
        return f"{text} ({'; '.join(labels)})" if labels else text

    def _filled(self, text: str, facts: Mapping[str, str]) -> str:
        said = {name: self._said(name, value) for name, value in facts.items()}
        said["kinds"] = self._listed([self._kind(part) for part in self._parts(facts.get("strategy", ""))])

        def part(match: re.Match[str]) -> str:
            return match[1] if all(said.get(name) for name in _SLOT.findall(match[1])) else ""

        text = _NAME.sub(lambda slot: f"`{facts.get(slot[1], '')}`", _MAYBE.sub(part, text))
        text = _SLOT.sub(lambda slot: said.get(slot[1]) or self.words.get(f"no {slot[1]}", ""), text)
        return text[:1].upper() + text[1:]

    def _said(self, name: str, value: str) -> str:
        if name == "strategy":
            return self._listed([self._part(*part.partition(": ")[::2]) for part in self._parts(value)])
        words = self.words
        return self._listed([words.get(f"{name} {w}", words.get(w, w.replace("_", " "))) for w in value.split(", ")])

    def _parts(self, strategy: str) -> list[str]:
        """The parts of a strategy, its cuts as one."""
        parts = strategy.split("; ")
        cuts = [part.removeprefix("Cut ") for part in parts if part.startswith("Cut ") and ":" not in part]
        both = f"`{self.words['and']}`".join(cuts)
        return [f"Cut {both}", *(p for p in parts if p.removeprefix("Cut ") not in cuts)] if cuts else parts

    def _part(self, kind: str, ranks: str) -> str:
        told = self._kind(kind)
        return self.words.get(f"{kind} of", self.words["{} on {}"]).format(told, ranks) if ranks else told

    def _kind(self, part: str) -> str:
        kind, _, axis = part.partition(": ")[0].partition("Cut ")
        kind, _, nodes = kind.partition(" on ")  # such as 'Expert on 4 nodes'
        most = self.words["at most nodes"].format(nodes.split()[0]) if nodes else ""
        return f"{self.words['Cut']} `{axis}`" if axis else self.words.get(kind, kind) + most

    def _listed(self, parts: Sequence[str]) -> str:
        *others, last = parts
        return self.words["and"].join([", ".join(others), last] if others else [last])

    def headings(self, runs: Sequence[Sequence[Answer]], sections: Sequence[str]) -> list[str]:
        """The headings of a document's answers, by rows and labels.

        Where two would have one name, what is given with them tells them apart, or the ``sections`` they stand in.
        """
        found: list[str] = []
        for run in runs:
            text, label = self.row(run).heading, run[0].label if len(run) == 1 else ""
            found.append(f"{text}: {label}" if label and label.lower() not in text.lower() else text)
        for text, times in Counter(found).items():
            if times > 1:
                alike = [at for at, one in enumerate(found) if one == text]
                plain = [_COUNT.sub("", sections[at]) for at in alike if not set(sections[at]) & {*"$`*_"}]
                other = plain if len({*plain}) == times else _differences([runs[at][0] for at in alike])
                for at, differs in zip(alike, other, strict=True):
                    found[at] = f"{text} ({differs})" if differs else text
        count: Counter[str] = Counter()
        for at, text in enumerate(found):
            count[text] += 1
            found[at] = f"{text} ({count[text]})" if count[text] > 1 else text
        return found


def _differences(answers: Sequence[Answer]) -> list[str]:
    """What each answer is given that the others are not, in a few words."""
    sets = [{f"`{g.name}` = {short(g.quantity)}" for g in one.given} for one in answers]
    shared = set.intersection(*sets)
    return [", ".join([text for text in sorted(own - shared) if len(text) < 30][:2]) for own in sets]


@cache
def questions(language: str) -> Questions:
    """The rows of a language, and those in English of what it lacks."""
    import yaml

    code = language.lower().replace("_", "-")
    rows: dict[str, str] = {}
    words: dict[str, str] = {}
    for name in dict.fromkeys(("en", code.partition("-")[0])):
        file = TEMPLATES / "questions" / f"{name}.yaml"
        if file.exists():
            read = yaml.safe_load(file.read_text(encoding="utf-8"))
            rows |= read["rows"]
            words |= read["words"]
    return Questions(rows, words)
