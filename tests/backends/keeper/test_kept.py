"""Which sandboxes of ended runs stay: by number, age and bytes; and what is told of the others."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from peloton.backends.keeper.kept import (
    AGE,
    BATCH_MAX,
    BYTES,
    COUNT,
    HELPER_S_MAX,
    KeepRules,
    KeptSandboxes,
)
from peloton.backends.keeper.removed import LENGTH_MAX, REMOVED, REMOVED_BEFORE, note_removed
from peloton.gateway.sandboxes import SandboxFiles
from peloton.runtime.far_files import FilesRemoved, NoFile

MB = 1024 * 1024


class Ended:
    """Sandboxes of ended runs, and a time that the test sets."""

    def __init__(self, folder: Path, rules: KeepRules) -> None:
        self.folder, self.now = folder, 1000.0
        self.kept = KeptSandboxes(lambda run: str(folder / run), rules, clock=lambda: self.now)

    def end(self, run: str, mb: int = 0) -> None:
        (self.folder / run).mkdir()
        (self.folder / run / "file").write_bytes(b"x" * mb * MB)
        self.kept.add(run)

    def measure(self) -> None:
        """One helper's whole life."""
        self.kept.measure()
        if self.kept.helper_pid:
            os.waitpid(self.kept.helper_pid, 0)
            self.kept.reaped()

    def due(self) -> list[tuple[str, str]]:
        return [(kept.run_id, rule) for kept, rule in self.kept.take_due(100)]


@pytest.fixture
def ended(tmp_path: Path) -> Callable[..., Ended]:
    return lambda **rules: Ended(tmp_path, KeepRules(**{"most": 100, **rules}))


def test_the_oldest_go_where_there_are_more_than_so_many(ended):
    runs = ended(most=2)
    for run in "abcd":
        runs.end(run)
    assert runs.due() == [("a", COUNT), ("b", COUNT)]
    assert runs.due() == []


def test_each_goes_so_long_after_its_end(ended):
    runs = ended(age_s=60.0)
    runs.end("a")
    runs.now += 30.0
    runs.end("b")
    runs.now += 29.9
    assert runs.due() == []
    runs.now += 0.1
    assert runs.due() == [("a", AGE)]
    runs.now += 30.0
    assert runs.due() == [("b", AGE)]


def test_the_oldest_go_until_the_others_fit(ended):
    runs = ended(mb=4)
    for run, mb in (("a", 1), ("b", 2), ("c", 2), ("d", 1)):
        runs.end(run, mb)
    assert runs.due() == [], "they are not measured yet"
    runs.measure()
    assert runs.due() == [("a", BYTES), ("b", BYTES)]
    runs.end("e", 3)
    runs.measure()
    assert runs.due() == [("c", BYTES), ("d", BYTES)]


def test_the_newest_stays_however_large_it_is(ended):
    runs = ended(mb=1)
    runs.end("a", 3)
    runs.measure()
    assert runs.due() == []
    runs.end("b")
    runs.measure()
    assert runs.due() == [("a", BYTES)]


def test_without_a_limit_of_bytes_nothing_is_measured(ended):
    runs = ended()
    runs.end("a", 1)
    runs.kept.measure()
    assert runs.kept.helper_pid == 0


def test_what_is_gone_by_the_time_it_is_measured_counts_as_empty(ended):
    runs = ended(mb=1, most=1)
    runs.end("a", 2)
    runs.end("b", 2)
    assert runs.due() == [("a", COUNT)]
    (runs.folder / "b" / "file").unlink()
    (runs.folder / "b").rmdir()
    runs.measure()
    runs.end("c", 2)
    runs.measure()
    assert runs.due() == [("b", COUNT)]
    runs.measure()
    assert runs.kept.helper_pid == 0


def test_one_that_takes_too_long_is_given_up_and_the_others_are_measured(ended):
    runs = ended(mb=3)
    for run in "abc":
        runs.end(run, 1)
    runs.kept.measure()
    runs.now += HELPER_S_MAX + 1.0
    runs.kept._helper.close()  # its lines are lost, as if it had stood at the first all the time
    runs.kept.measure()
    os.waitpid(runs.kept.helper_pid, 0)
    runs.kept.reaped()
    runs.measure()
    assert runs.due() == [], "the first counts as empty, the other two fit"


def test_many_are_measured_in_batches(ended):
    runs = ended(most=10_000, mb=1)
    for number in range(BATCH_MAX + 1):
        runs.end(f"r{number}")
    runs.measure()
    assert runs.kept._unmeasured
    runs.measure()
    assert not runs.kept._unmeasured


@pytest.fixture
def removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SandboxFiles:
    """The files of a keeper whose folder is the working folder."""
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    return SandboxFiles(tmp_path / "runs", ("localhost", 1))


LIMITS = {COUNT: 7.0, AGE: 90.0, BYTES: 5.0}


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (COUNT, "of ended runs those of the newest 7 are kept (keep_sandboxes)"),
        (AGE, "those of ended runs are kept for 90 s (keep_sandboxes_for)"),
        (BYTES, "those of ended runs may take 5 MB, the oldest go (keep_sandboxes_mb)"),
    ],
)
def test_whoever_asks_for_files_that_were_removed_is_told_the_rule(removed, rule, text):
    note_removed([("r-0-1", rule)], limits=LIMITS, now=0.0)
    with pytest.raises(FilesRemoved) as found, removed.open("/r-0-1/stdout"):
        pass
    whole = f"the files of run r-0-1 were removed at 1970-01-01 00:00:00Z: {text}"
    assert str(found.value) == removed.why_removed("r-0-1") == whole


def test_of_other_files_it_is_said_only_that_there_are_none(removed, tmp_path):
    (tmp_path / "runs" / "r-2-1").mkdir()
    note_removed([("r-0-1", AGE), ("r-2-1", AGE)], limits=LIMITS, now=0.0)
    for path in ("/r-1-1/stdout", "/r-2-1/stdout"):  # unknown; it exists, without such a file
        with pytest.raises(NoFile) as found, removed.open(path):
            pass
        assert not isinstance(found.value, FilesRemoved)
        assert removed.why_removed(path.split("/")[1]) == ""


def test_a_damaged_line_is_no_text(removed):
    Path(REMOVED).write_text("r-0-1\tage\nr-1-1\twhim\t1\t1\nr-2-1\tage\tx\t1\n")
    assert [removed.why_removed(f"r-{number}-1") for number in range(3)] == ["", "", ""]


def test_the_list_of_the_removed_has_a_bounded_length(removed):
    name = "r" * 200
    for number in range(12):
        runs = [(f"{name}-{number}-{at}", AGE) for at in range(1000)]
        note_removed(runs, limits=LIMITS, now=0.0)
        assert os.stat(REMOVED).st_size < 2 * LENGTH_MAX
    assert os.stat(REMOVED_BEFORE).st_size < 2 * LENGTH_MAX
    for number in (7, 11):  # of the file before, and of the newest
        assert removed.why_removed(f"{name}-{number}-0") != ""
    assert removed.why_removed(f"{name}-0-0") == ""
