"""The runner of planted faults plants, judges and tidies up, shown in a tree of three small files.

`script/mutants` judges the entries of the lists, every night.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.mutants import runner
from tests.mutants.runner import (
    BROKEN_KILLER,
    GONE,
    KILLED,
    NOT_APPLICABLE,
    SURVIVED,
    Mutant,
    Tree,
    Verdict,
    mutants,
)

LIMIT_S = 120.0
MUTANT = Mutant(
    name="small: it grows",
    file="small.py",
    old="return 1",
    new="return 2",
    breaks="It is one.",
    killed_by=("test_small.py::test_it_is_one",),
)
OPTIONS = """
def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true")
    parser.addoption("--nightly", action="store_true")
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "small.py").write_text("def one():\n    return 1\n")
    (folder / "test_small.py").write_text(
        "import small\n\n\ndef test_it_is_one():\n    assert small.one() == 1\n"
    )
    (folder / "conftest.py").write_text(OPTIONS)
    return folder


@pytest.fixture
def tree(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take most of the time
    return Tree(tmp_path / "copy", source)


def test_a_planted_fault_is_killed_by_its_test(tree: Tree) -> None:
    tree.plant(MUTANT)
    assert tree.run(MUTANT.killed_by, LIMIT_S) == (KILLED, MUTANT.killed_by[0])


def test_what_changes_nothing_survives_and_what_is_restored_does(tree: Tree, source: Path) -> None:
    before = (source / "small.py").read_bytes()
    tree.plant(MUTANT)
    assert (tree.root / "small.py").read_text() == "def one():\n    return 2\n"
    tree.restore(MUTANT)
    assert (source / "small.py").read_bytes() == before == (tree.root / "small.py").read_bytes()
    tree.plant(MUTANT._replace(new="return 1 * 1"))
    assert tree.run(MUTANT.killed_by, LIMIT_S) == (SURVIVED, "")


def test_a_test_that_is_not_there_kills_nothing(tree: Tree) -> None:
    verdict, why = tree.run(["test_small.py::test_that_is_not_there"], LIMIT_S)
    assert verdict == BROKEN_KILLER and "test_that_is_not_there" in why


@pytest.mark.parametrize(
    ("changed", "verdict", "why"),
    [
        ({"file": "nothing.py"}, GONE, "no longer in nothing.py"),
        ({"old": "no such text"}, GONE, "no longer in small.py"),
        ({"old": "n"}, NOT_APPLICABLE, "times in small.py"),
        ({"new": "return ("}, NOT_APPLICABLE, "does not compile"),
    ],
)
def test_what_cannot_be_planted_says_why(
    source: Path, changed: dict[str, str], verdict: str, why: str
) -> None:
    found = MUTANT._replace(**changed).problem(source)
    assert found is not None and found[0] == verdict and why in found[1]


def test_what_can_be_planted_has_no_problem(source: Path) -> None:
    assert MUTANT.problem(source) is None


@pytest.mark.parametrize(
    ("killer", "there"),
    [
        ("test_small.py::test_it_is_one[case]", True),
        ("storms 1-3", True),
        ("test_small.py::test_it_is_two", False),
        ("test_large.py::test_it_is_one", False),
        ("test_small.py", False),
    ],
)
def test_a_killer_that_is_not_there_is_known_before_it_runs(
    source: Path, killer: str, there: bool
) -> None:
    assert runner.defined(killer, source) is there


def test_the_summary_lists_what_needs_a_hand_and_ends_with_the_counts() -> None:
    found = [Verdict("a", KILLED, "test"), Verdict("b", GONE, "why"), Verdict("c", SURVIVED)]
    assert runner.summary(found).splitlines() == [
        "gone: drop the entry:",
        "    b",
        "survived:",
        "    c",
        "1 of 3 killed, 1 gone: drop the entry, 1 survived",
    ]


def test_a_verdict_is_kept_until_something_near_changes(tmp_path: Path) -> None:
    results = runner.Results(tmp_path / "results")
    verdict = Verdict(MUTANT.name, KILLED, "a test", 1.0)
    results.note(MUTANT, MUTANT.killed_by, verdict=verdict)
    again = runner.Results(tmp_path / "results")
    assert again.find(MUTANT, MUTANT.killed_by) == verdict
    assert again.find(MUTANT._replace(new="other"), MUTANT.killed_by) is None
    assert again.find(MUTANT, ("tests/core",)) is None


def test_the_lists_can_be_read_and_each_name_is_given_once() -> None:
    every = mutants()
    assert every
    assert [name for name, count in Counter(one.name for one in every).items() if count > 1] == []
    assert [one.name for one in every if not one.killed_by or one.old == one.new] == []


def test_a_selection_of_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["--select", "nosuch"]) == 2
    assert "no mutant has 'nosuch'" in capsys.readouterr().err
