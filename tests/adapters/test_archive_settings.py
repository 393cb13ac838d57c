"""How long ended jobs are kept, as people write it: in a daemon's file and on the command line."""

from __future__ import annotations

import math

import pytest

from peloton.actors.job.kind import FINISHED_JOBS_BYTES_MAX
from peloton.settings.archive import ArchiveSetting, archive_problems, byte_count, seconds


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("90s", 90.0), ("1.5h", 5400.0), ("1d12h", 129_600.0), ("30d", 2_592_000.0), ("0s", 0.0)],
)
def test_lengths_of_time_have_units(text: str, wanted: float) -> None:
    assert seconds(text) == wanted


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1 d", "1w", "never", "99999999d", "1d-"])
def test_what_is_no_length_of_time_is_named(text: str) -> None:
    setting = ArchiveSetting(after=text, forget_after="30d")
    (problem,) = archive_problems(setting)
    assert problem.startswith(f"archive.after: {text!r}")


def test_by_default_jobs_are_kept_for_thirty_days_a_day_of_them_in_memory() -> None:
    setting = ArchiveSetting()
    assert (setting.after_s, setting.forget_after_s) == (86_400.0, 30 * 86_400.0)


def test_a_job_leaves_memory_before_it_is_deleted() -> None:
    assert ArchiveSetting(after="2d", forget_after="1d").after_s == 86_400.0


def test_never_is_for_deletion_alone() -> None:
    setting = ArchiveSetting(forget_after="never")
    assert setting.forget_after_s == math.inf
    assert not [*archive_problems(setting)]


@pytest.mark.parametrize(
    ("text", "wanted"), [("64MB", 64e6), ("500kB", 5e5), ("1.5GB", 1.5e9), ("0B", 0.0)]
)
def test_amounts_have_units(text: str, wanted: float) -> None:
    assert byte_count(text) == wanted


@pytest.mark.parametrize("text", ["", "64", "MB", "-1MB", "64 MB", "64mb", "1MiB", "9999999GB"])
def test_what_is_no_amount_is_named(text: str) -> None:
    setting = ArchiveSetting(keep_bytes=text)
    (problem,) = archive_problems(setting)
    assert problem.startswith(f"archive.keep_bytes: {text!r}")


def test_the_default_is_that_of_the_kind() -> None:
    assert byte_count(ArchiveSetting().keep_bytes) == FINISHED_JOBS_BYTES_MAX
