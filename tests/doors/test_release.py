"""What a release says of itself: one version and date, limits that the code has, types for those who import it."""

import re
import tomllib
from datetime import date
from pathlib import Path

import pytest
import yaml

import symcomm

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def newest() -> tuple[str, str]:
    log = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(r"^## \[(\d+\.\d+\.\d+)\] - (\S+)$", log, re.MULTILINE)
    assert found is not None, "CHANGELOG.md has no dated release"
    return found[1], found[2]


def test_the_newest_release_has_one_version_and_one_date_everywhere():
    version, day = newest()
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert version == PROJECT["version"] == cited["version"]
    assert date.fromisoformat(day) == date.fromisoformat(cited["date-released"])
    assert cited["license"] == "MIT"


def test_the_log_of_changes_has_one_short_line_a_change_and_none_twice():
    log = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = [line for line in log.splitlines() if line.startswith("- ")]
    assert [line for line in entries if len(line) > 160] == []
    assert len({line.casefold() for line in entries}) == len(entries)


def test_the_package_says_that_it_is_typed():
    folder = Path(symcomm.__file__).parent
    assert (folder / "py.typed").exists()
    assert "Typing :: Typed" in PROJECT["classifiers"]


LIMITS = {
    "files.LARGEST": "a problem document, a table or another text file | 2,000,000 bytes",
    "blocks.SIZE_LIMIT": "one YAML block | 100,000 characters",
    "blocks.DEPTH_LIMIT": "nested 12 deep",
    "table.CELL_LIMIT": "one cell of a table | 2,000 characters",
    "table.ROW_LIMIT": "rows of a table | 20,000",
    "tokens.DEPTH_LIMIT": "brackets within one another in a formula | 60",
    "tokens.EXPONENT_LIMIT": "a power | 1,000",
    "characters.LENGTH_LIMIT": "a student's answer | 2,500 characters",
    "sheets.ANSWER_LIMIT": "an answer in a sheet of answers | 200,000",
    "drawing_values.VALUES_LIMIT": "values of one draw | 10,000",
    "roster.STUDENT_LIMIT": "students of a roster | 20,000",
    "figures.FIGURE_LIMIT": "figures of a document | 100",
    "pictures.SIZE_LIMIT": "a picture | 5,000,000 bytes",
    "module_text.MODULE_LIMIT": "modules of a printed model | 20,000",
    "identity.SECONDS": "the proof of one identity | 2 seconds",
    "patience.SECONDS": "an optimum | 60 seconds",
    "patience.CROSSING": "where two costs are equal | 2 seconds of the processor",
    "prose._TIMEOUT": "pandoc on one document | 60 seconds",
    "pdf._LATEX_TIMEOUT": "LaTeX on one document | 180 seconds",
    "launch.TIME_LIMIT": "a run in PyTorch | 120 seconds",
    "launch.RANK_LIMIT": "at most 8 processes",
    "space.MOST_CONFIGURATIONS": "configurations of a search | 100,000,000",
    "sweep.MOST": "combinations of a sweep | 100,000",
}


def limits_of(name: str) -> float:
    """The number of a constant as the only module of its name that has it says it."""
    module, _, constant = name.partition(".")
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "symcomm").rglob(f"{module}.py")]
    (found,) = [hit[1] for text in texts if (hit := re.search(rf"^{constant} = ([\d_.*]+)", text, re.MULTILINE))]
    base, _, power = found.replace("_", "").partition("**")
    return float(base) ** float(power or 1)


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_that_is_told_is_the_one_that_holds(name: str):
    told = LIMITS[name]
    assert told in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    number = re.findall(r"[\d,]*\d", told)[-1]
    assert float(number.replace(",", "")) == limits_of(name)
