"""What is said of limits that this machine cannot hold, and what the settings make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from peloton.assembly.task_limits import limits_note, problem, task_limits
from peloton.backends.keeper.group_roots import FoundRoot
from peloton.backends.keeper.groups import GroupRoot
from peloton.backends.process import TaskLimits
from peloton.settings.config import BadSetting
from peloton.settings.daemon import DaemonSettings, parse

HERE = GroupRoot(2, {"memory": "/x"}, ("/y",))
NOWHERE = FoundRoot(None, "nothing is mounted")


def settings(tmp_path: Path, **process: Any) -> DaemonSettings:
    raw = {
        "cluster": "c",
        "journal": {"sqlite": {"folder": "data"}},
        "backend": {"process": {"folder": "keeper", "hosts": [{"name": "a"}], **process}},
    }
    return parse(raw, tmp_path)


def test_what_the_machine_cannot_hold_stops_a_start_only_where_it_must(tmp_path):
    for mode, stops in (("enforce", True), ("try", False), ("off", False)):
        found = problem(settings(tmp_path, limits=mode), find=lambda name: NOWHERE)
        assert bool(found) == stops, mode
    must = settings(tmp_path, limits="enforce")
    text = problem(must, find=lambda name: NOWHERE)
    assert text.startswith("backend.process.limits: ") and "nothing is mounted" in text
    assert problem(must, find=lambda name: FoundRoot(HERE)) == ""
    assert "no limit of cpu" in problem(must, find=lambda name: FoundRoot(HERE, "no limit of cpu"))


def test_health_says_what_does_not_hold_and_only_then(tmp_path):
    tried = settings(tmp_path)
    note = limits_note(tried, find=lambda name: NOWHERE)
    assert "nothing is mounted" in note and "memory is checked once a second" in note
    assert limits_note(tried, find=lambda name: FoundRoot(HERE)) == ""
    off = settings(tmp_path, limits="off")
    assert limits_note(off, find=lambda name: NOWHERE) == "", "as it was asked for"


def test_a_machine_that_cannot_be_asked_has_no_groups(tmp_path):
    def fails(name: str) -> FoundRoot:
        raise PermissionError(13, "Permission denied")

    assert "Permission denied" in limits_note(settings(tmp_path), find=fails)


def test_the_settings_reach_the_backend(tmp_path):
    assert task_limits(settings(tmp_path)) == TaskLimits("try", False, 4096, "ignore")
    made = settings(tmp_path, limits="off", cpu_quota=True, task_pids=0, images="refuse")
    assert task_limits(made) == TaskLimits("off", True, 0, "refuse")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("limits", "yes", "backend.process.limits: 'yes' is none of enforce, try, off"),
        ("images", "yes", "backend.process.images: 'yes' is none of ignore, run, refuse"),
        ("task_pids", -1, "backend.process.task_pids: -1 is not between 0 and 4.1943e+06"),
    ],
)
def test_settings_that_are_none_are_refused(tmp_path, name, value, text):
    with pytest.raises(BadSetting) as caught:
        settings(tmp_path, **{name: value})
    assert caught.value.texts == (text,)
