"""The lists of planted faults stay true to the source, and what they name still notices.

All of them are run by `script/mutants`; here only a few are, because each takes a process.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.mutants import runner
from tests.mutants.runner import (
    BROKEN_KILLER,
    KILLED,
    ROOT,
    STORMS,
    SURVIVED,
    Mutant,
    Tree,
    mutants,
)

COUNT_MIN = 120
LIMIT_S = 120.0
ALL = mutants()
QUICK = (
    "rounds: a doubt is forgotten",
    "keeper: a host's epoch is not synced",
)  # fmt: skip


def test_each_fault_can_be_planted() -> None:
    assert [f"{one.name}: {why}" for one in ALL if (why := one.problem())] == []


def test_each_fault_has_a_name_of_its_own_and_says_what_it_breaks() -> None:
    assert len(ALL) >= COUNT_MIN
    assert [name for name, count in Counter(one.name for one in ALL).items() if count > 1] == []
    assert [one.name for one in ALL if not one.breaks.endswith((".", ")"))] == []
    assert [one.name for one in ALL if one.old == one.new] == []


def defined(killer: str) -> bool:
    """Whether the test is there; its parameters are known to a collection only."""
    if STORMS.fullmatch(killer):
        return True
    file, *names = killer.partition("[")[0].split("::")
    path = ROOT / file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return bool(names) and all(f"def {name}(" in text or f"class {name}" in text for name in names)


def test_whatever_is_to_kill_it_is_there() -> None:
    assert [one.name for one in ALL if not one.killed_by] == []
    missing = [killer for one in ALL for killer in one.killed_by if not defined(killer)]
    assert missing == []


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(tmp_path_factory.mktemp("mutants") / "copy")


def verdict_of(tree: Tree, mutant: Mutant) -> tuple[str, str]:
    tree.plant(mutant)
    try:
        return tree.run(mutant.killed_by, LIMIT_S)
    finally:
        tree.restore(mutant)


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_fault_is_killed_by_its_tests(tree: Tree, name: str) -> None:
    (mutant,) = (one for one in ALL if one.name == name)
    verdict, by = verdict_of(tree, mutant)
    assert (verdict, by.partition("[")[0]) == (KILLED, mutant.killed_by[0].partition("[")[0])


def test_what_changes_nothing_survives(tree: Tree) -> None:
    """The copy runs the same tests well, so a fault was what they failed by."""
    (mutant,) = (one for one in ALL if one.name == QUICK[0])
    harmless = mutant._replace(new=f"        pass\n{mutant.old}")
    assert verdict_of(tree, harmless) == (SURVIVED, "")


def test_a_test_that_is_not_there_kills_nothing(tree: Tree) -> None:
    killer = "tests/core/test_rounds.py::test_that_is_not_there"
    verdict, why = tree.run([killer], LIMIT_S)
    assert verdict == BROKEN_KILLER and "test_that_is_not_there" in why


def test_the_tree_itself_is_left_alone(tree: Tree, tmp_path: Path) -> None:
    mutant = ALL[0]._replace(file="setup.py", old="from", new="form")
    before = (ROOT / "setup.py").read_bytes()
    tree.plant(mutant)
    assert (tree.root / "setup.py").read_bytes() != before
    tree.restore(mutant)
    assert (ROOT / "setup.py").read_bytes() == before == (tree.root / "setup.py").read_bytes()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"file": "peloton/nothing.py"}, "peloton/nothing.py is gone"),
        ({"old": "no such text"}, "its old text occurs 0 times in setup.py"),
        ({"old": "#"}, "times in setup.py"),
        ({"old": "import runpy", "new": "import ("}, "does not compile"),
    ],
)
def test_what_cannot_be_planted_says_why(changed: dict[str, str], why: str) -> None:
    mutant = ALL[0]._replace(**{"file": "setup.py", **changed})
    assert why in mutant.problem()


def test_a_verdict_is_kept_until_something_near_changes(tmp_path: Path) -> None:
    mutant = ALL[0]
    results = runner.Results(tmp_path / "results")
    verdict = runner.Verdict(mutant.name, KILLED, "a test", 1.0)
    results.note(mutant, mutant.killed_by, verdict=verdict)
    again = runner.Results(tmp_path / "results")
    assert again.find(mutant, mutant.killed_by) == verdict
    assert again.find(mutant._replace(new="other"), mutant.killed_by) is None
    assert again.find(mutant, ("tests/core",)) is None


def test_a_selection_of_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["--select", "nosuch"]) == 2
    assert "no mutant has 'nosuch'" in capsys.readouterr().err
