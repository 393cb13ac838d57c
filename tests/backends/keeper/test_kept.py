"""Which sandboxes of ended runs stay: by job, number, age and bytes.

Held ones are removed only for the reserve of the disk. The tests also show what is told of the
others.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peloton.backends.keeper.disk import Disk
from peloton.backends.keeper.kept import (
    AGE,
    BATCH_MAX,
    BYTES,
    COUNT,
    FREE,
    HELPER_S_MAX,
    LEASE_S_MAX,
    LEASES_MAX,
    SPARED_S,
    KeepRules,
    KeptSandboxes,
)
from peloton.backends.keeper.kinds import FAILED, LOST, SUCCEEDED
from peloton.backends.keeper.removed import LENGTH_MAX, REMOVED, REMOVED_BEFORE, note_removed
from peloton.backends.keeper.sandboxes import SandboxFolders
from peloton.gateway.cluster.sandboxes import SandboxFiles
from peloton.runtime.far_files import FilesRemoved, NoFile

MB = 1024 * 1024


class Ended:
    """Sandboxes of ended runs, and a time that the test sets."""

    def __init__(self, folder: Path, rules: KeepRules) -> None:
        self.folder, self.now = folder, 1000.0
        self.kept = KeptSandboxes(
            lambda run: str(folder / run), rules, clock=lambda: self.now, ticks=lambda: self.now
        )

    def end(self, run: str, mb: int = 0, *, failed: bool = False) -> None:
        (self.folder / run).mkdir()
        (self.folder / run / "file").write_bytes(b"x" * mb * MB)
        self.kept.add(run, failed=failed)

    def measure(self) -> None:
        """One helper's whole life."""
        self.kept.measure()
        if self.kept.helper_pid:
            os.waitpid(self.kept.helper_pid, 0)
            self.kept.reaped()

    def due(self, short_mb: int = 0) -> list[tuple[str, str]]:
        found = self.kept.take_due(100, short_kib=short_mb * 1024)
        return [(kept.run_id, rule) for kept, rule in found]

    def gone(self, short_mb: int = 0) -> str:
        """The runs alone."""
        return " ".join(run for run, _ in self.due(short_mb))


@pytest.fixture
def ended(tmp_path: Path) -> Callable[..., Ended]:
    return lambda **rules: Ended(tmp_path, KeepRules(**{"most": 100, **rules}))


def test_the_oldest_go_where_there_are_more_than_so_many(ended):
    runs = ended(most=2)
    for run in "abcd":
        runs.end(run)
    assert runs.due() == [("a", COUNT), ("b", COUNT)]
    assert runs.due() == []


def test_the_job_whose_last_run_ended_longest_ago_goes_first(ended):
    runs = ended(most=2)
    for run in ("a-0-1", "b-0-1", "a-1-1", "b-1-1.g2", "a-2-1"):
        runs.end(run)
    assert runs.gone() == "b-0-1 b-1-1.g2 a-0-1"


def test_failed_runs_go_last(ended):
    runs = ended(most=4)
    runs.end("a-0-1", failed=True)
    runs.end("a-1-1")
    runs.end("b-0-1", failed=True)
    for run in ("c-0-1", "d-0-1"):
        runs.end(run)
    assert runs.gone() == "a-1-1"
    runs.end("e-0-1")
    assert runs.gone() == "c-0-1"


def test_failed_runs_take_half_at_most(ended):
    """Else what has just succeeded would be gone at once, where something fails all the time."""
    runs = ended(most=4)
    for run in "abcd":
        runs.end(run, failed=True)
    runs.end("e")
    assert runs.gone() == "a"
    runs.end("f")
    assert runs.gone() == "b"
    runs.end("g")
    assert runs.gone() == "e", "two have failed, which is half"


def test_of_a_job_that_is_leased_nothing_goes(ended):
    runs = ended(most=1, age_s=10.0, mb=1)
    runs.kept.lease("a", 60.0)
    for run in ("a-0-1", "a-1-1", "a-2-1"):
        runs.end(run, 1)
    runs.end("a-3-1", failed=True)
    runs.end("b-0-1")
    runs.measure()
    runs.now += 9.0
    assert runs.due() == [], "what is held does not count either"
    runs.now += 50.0
    assert runs.gone() == "b-0-1"
    runs.kept.lease("a", 60.0)
    runs.now += 59.0
    assert runs.due() == [], "it was renewed"
    runs.now += 1.0
    assert runs.gone() == "a-0-1 a-1-1 a-2-1 a-3-1", "nobody renews it any more"


def test_what_was_leased_counts_as_the_newest(ended):
    """So it is for who has just read it."""
    runs = ended(most=1)
    runs.end("a-0-1")
    runs.kept.lease("a", 60.0)
    runs.end("b-0-1")
    runs.now += 60.0
    assert runs.gone() == "b-0-1"


def test_a_shorter_lease_ends_none(ended):
    runs = ended(most=0)
    runs.kept.lease("a", 60.0)
    runs.kept.lease("a", 1.0)
    runs.end("a-0-1")
    runs.now += 59.0
    assert runs.due() == []
    runs.now += 1.0
    assert runs.gone() == "a-0-1"


@pytest.mark.parametrize("for_s", [1e9, float("inf")])
def test_no_lease_lasts_long(ended, for_s):
    runs = ended(most=0)
    runs.kept.lease("a", for_s)
    runs.end("a-0-1")
    runs.now += LEASE_S_MAX
    assert runs.gone() == "a-0-1"


def test_so_many_jobs_are_leased_at_most(ended):
    runs = ended(most=0)
    for number in range(LEASES_MAX + 1):
        runs.kept.lease(str(number), 60.0)
    runs.end(f"{LEASES_MAX}-0-1")
    assert runs.gone() == f"{LEASES_MAX}-0-1"


def test_the_reserve_of_the_disk_wins_even_of_what_is_leased(ended):
    runs = ended(free_mb=1)
    runs.kept.lease("a", 60.0)
    runs.end("a-0-1", 2)
    runs.end("a-1-1", 2, failed=True)
    runs.end("b-0-1", 2, failed=True)
    runs.end("c-0-1", 2)
    runs.measure()
    assert runs.due() == []
    assert runs.due(short_mb=3) == [("c-0-1", FREE), ("b-0-1", FREE)]
    assert runs.due(short_mb=1) == [("a-0-1", FREE)]
    assert runs.due(short_mb=1) == [("a-1-1", FREE)]
    assert runs.due(short_mb=1) == []


def test_of_a_job_that_goes_on_for_ever_old_runs_go_as_well(ended):
    runs = ended(age_s=60.0)
    for number in range(5):
        runs.end(f"a-0-{number}")
        runs.now += 30.0
    assert runs.gone() == "a-0-0 a-0-1 a-0-2 a-0-3"


def test_all_jobs_have_their_turn_to_be_looked_at(ended):
    runs = ended(most=10_000, age_s=60.0)
    for number in range(300):
        runs.kept.add(f"{number}-0-1")
    runs.kept.lease("0", 100.0)
    runs.now += 60.0
    gone = [runs.gone().split() for _ in range(5)]
    assert sum(map(len, gone)) == 299
    runs.now += 40.0
    assert runs.gone() == "0-0-1"
    assert not runs.kept._turn


def folders(folder: Path, **rules: int) -> SandboxFolders:
    found = SandboxFolders(str(folder), rules=KeepRules(**{"most": 100, **rules}))
    found.open(())
    return found


def test_a_keeper_that_begins_knows_which_runs_failed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    boxes = folders(tmp_path)
    for run, outcome in (("a-0-1", FAILED), ("b-0-1", LOST), ("c-0-1", SUCCEEDED)):
        boxes.make(run)
        boxes.finish(run, {"outcome": outcome})
    boxes.prune()
    again = folders(tmp_path)
    assert (again.kept._done.runs, again.kept._failed.runs) == (1, 2)


def test_a_keeper_that_begins_gives_readers_time_to_renew_their_leases(tmp_path):
    now = 0.0
    kept = KeptSandboxes(str, KeepRules(0, age_s=1.0, free_mb=1), ticks=lambda: now)
    kept.add("a-0-1", 0.0)
    kept.add("b-0-1", 0.0)
    kept.spare()
    assert kept.take_due(9) == []
    assert len(kept.take_due(9, short_kib=1)) == 1, "but for the reserve"
    now = SPARED_S
    assert len(kept.take_due(9)) == 1


class ShortDisk(Disk):
    """4 GB, so much of it free, and so many files more."""

    free_mb, files = 4000, 1_000_000

    def statvfs(self, path: str) -> Any:
        return os.statvfs_result(
            (4096, 1 << 20, 4000, self.free_mb, self.free_mb, 2_000_000, self.files, self.files)
            + (0, 255)
        )


@pytest.mark.parametrize(
    ("free_mb", "files", "wanted_mb", "short_mb"),
    [
        (4000, 1_000_000, 100, 0),
        (100, 1_000_000, 100, 0),
        (60, 1_000_000, 100, 40),
        (60, 1_000_000, 1000, 140),  # 5 % of 4 GB are 200 MB
        (0, 1_000_000, 0, 0),
        (4000, 9_999, 100, 1),
    ],
)
def test_how_much_a_disk_lacks_of_its_reserve(
    tmp_path, monkeypatch, free_mb, files, wanted_mb, short_mb
):
    monkeypatch.chdir(tmp_path)
    disk = ShortDisk()
    disk.free_mb, disk.files = free_mb, files
    rules = KeepRules(100, free_mb=wanted_mb)
    assert SandboxFolders(str(tmp_path), rules=rules, disk=disk)._short_kib() == short_mb * 1024


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


def test_more_bytes_are_no_matter_while_they_are_leased(ended):
    runs = ended(mb=2)
    runs.kept.lease("a", 60.0)
    runs.end("a-0-1", 4)
    runs.end("b-0-1", 1)
    runs.measure()
    assert runs.due() == []
    runs.now += 60.0
    assert runs.gone() == "b-0-1"
    runs.end("c-0-1", 0)
    runs.measure()
    assert runs.gone() == "a-0-1"


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
    runs = ended(most=10_000, mb=100)
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


LIMITS = {COUNT: 7.0, AGE: 90.0, BYTES: 5.0, FREE: 9.0}


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (COUNT, "of ended runs those of 7 are kept (keep_sandboxes)"),
        (AGE, "those of ended runs are kept for 90 s (keep_sandboxes_for)"),
        (BYTES, "those of ended runs may take 5 MB, the oldest go (keep_sandboxes_mb)"),
        (FREE, "9 MB of the disk, or 5 % of it, stay free (keep_sandboxes_free_mb)"),
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
