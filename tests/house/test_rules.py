"""The page of rules and faults names what is there, and leaves out none of them.

`script/planted` judges whether a checker is strong enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from peloton.chaos.cluster.faults import ALL_FAULTS
from tests.house.tree import ROOT, defines, hold
from tests.worlds.planted import PLANTED

PAGE = ROOT / "docs" / "rules_and_faults.md"
RULES = [*(f"R{n}" for n in range(1, 8)), "R8a", "R8b", "R8c", *(f"R{n}" for n in range(9, 40))]
PROMISES = [f"P{n}" for n in range(1, 16)]
FAULTS = [f"F{n}" for n in range(1, 50)]
PLACE = re.compile(r"`((?:tests|peloton)/[\w/.-]+)(?:: (\w+))?`")
NAME = re.compile(r"\*([^*|]+)\*")
RAISED = re.compile(r'"(R\d+[abc]?) ')
STORMS = ("peloton/chaos/cluster", "peloton/runtime/simulation")


def rows(text: str) -> dict[str, str]:
    """The rest of each row, by its rule, promise or fault; raises if one has two."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith(("| R", "| P", "| F")):
            name, rest = line.strip("| ").split(" | ", 1)
            assert name not in found, f"{name} has two rows"
            found[name] = rest
    return found


def wrong(text: str) -> Iterator[str]:
    """What the page leaves out, or names though it is not there."""
    found = rows(text)
    if [*found] != RULES + PROMISES + FAULTS:
        names = ", ".join(sorted({*RULES, *PROMISES, *FAULTS} ^ found.keys()))
        yield f"the rows differ from the lists of this test in {names or 'order'}: make them agree"
    for name, rest in found.items():
        for path, inside in PLACE.findall(rest):
            file = ROOT / path
            if not file.exists() or (inside and not defines(file.read_text("utf-8"), inside)):
                yield f"{name}: there is no {path}: {inside}: name what shows it now"
        for fault in NAME.findall(rest):
            if fault not in ALL_FAULTS and fault not in PLANTED:
                yield f"{name}: there is no fault named {fault}: name one that is planted"
        if not PLACE.search(rest) and not NAME.search(rest) and "not yet: " not in rest:
            yield f"{name}: neither covered nor said to be not: name a test, or write `not yet: `"
    for fault, row in ALL_FAULTS.items():
        if f"*{fault}*" not in found.get(row.number, ""):
            yield f"{row.number}: *{fault}* is missing: add it to the row"
    for rule, path in raised():
        if f"`{path}" not in found.get(rule, ""):
            yield f"{rule}: {path} checks it, and is missing: add it to the row"


def raised() -> Iterator[tuple[str, str]]:
    """Each rule and the modules of the storms that raise it."""
    for folder in STORMS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for rule in dict.fromkeys(RAISED.findall(path.read_text("utf-8"))):
                yield rule, path.relative_to(ROOT).as_posix()


def test_every_rule_and_fault_has_a_row_that_names_what_is_there() -> None:
    hold(f"docs/rules_and_faults.md: {line}" for line in wrong(PAGE.read_text("utf-8")))
    assert len([*raised()]) > 15


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("| R7 |", "| R77 |", "the rows differ"),
        ("| P7 |", "| P77 |", "the rows differ"),
        ("*bit rot*", "–", "*bit rot* is missing"),
        ("*bit rot*", "*bit rott*", "no fault named"),
        ("shadow_ledger.py: launching`", "shadow_ledger.py: lunching`", "there is no"),
        ("`peloton/chaos/cluster/rules/feed_check.py: FeedCheck`", "a checker", "is missing"),
        ("*same key, other body*", "–", "F22: neither"),
    ],
)
def test_what_is_missing_is_noticed(old: str, new: str, found: str) -> None:
    text = PAGE.read_text("utf-8")
    assert old in text
    assert any(found in line for line in wrong(text.replace(old, new)))
