"""Runs are told in their sandbox why they end; one that has saved its work ends at once."""

from __future__ import annotations

import os
from pathlib import Path

from peloton.backends.keeper.stops import LOOK_S, NOTICE, SAVED, Notices


def test_a_run_is_told_and_its_answer_is_seen_once(tmp_path: Path) -> None:
    notices = Notices()
    assert notices.next_look() is None
    notices.give("r", str(tmp_path), text="for /b")
    assert (tmp_path / NOTICE).read_text() == "for /b\n"
    assert notices.saved(1.0) == [] and notices.next_look() == 1.0 + LOOK_S
    (tmp_path / SAVED).touch()
    assert notices.saved(1.0 + LOOK_S / 2) == [], "it is not looked for all the time"
    assert notices.saved(1.0 + LOOK_S) == ["r"]
    assert notices.saved(9.0) == [] and notices.next_look() is None


def test_one_that_has_ended_is_looked_for_no_more(tmp_path: Path) -> None:
    notices = Notices()
    notices.give("r", str(tmp_path), text="for /b")
    notices.drop("r")
    (tmp_path / SAVED).touch()
    assert notices.saved(9.0) == [] and notices.next_look() is None


def test_what_a_program_has_laid_out_is_not_written_to(tmp_path: Path) -> None:
    """A task must not make a keeper of root write where the task itself may not."""
    sandbox, other = tmp_path / "sandbox", tmp_path / "other"
    sandbox.mkdir()
    other.write_text("mine")
    os.symlink(other, sandbox / NOTICE)
    notices = Notices()
    notices.give("r", str(sandbox), text="for /b")
    assert other.read_text() == "mine" and notices.next_look() is None
    os.symlink(sandbox, tmp_path / "link")
    (sandbox / NOTICE).unlink()
    notices.give("r", str(tmp_path / "link"), text="for /b")
    assert not (sandbox / NOTICE).exists()
    notices.give("r", str(tmp_path / "none"), text="for /b")
    assert notices.next_look() is None
