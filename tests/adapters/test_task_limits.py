"""What is said of limits that this machine cannot hold, and what the settings make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from peloton.assembly.task_limits import limits_note, problem, task_limits
from peloton.backends.keeper.group_places import FoundPlace
from peloton.backends.keeper.groups import GroupPlace
from peloton.backends.process import TaskLimits
from peloton.settings.config import BadSetting, HostReserved, HostSetting, less_reserved
from peloton.settings.daemon import DaemonSettings, parse
from peloton.settings.start_options import STANDARD_START
from tests.cli.terminal import typed

NAMES = STANDARD_START.names
HERE = GroupPlace(2, {"memory": "/x"}, ("/y",))
NOWHERE = FoundPlace(None, "nothing is mounted")
HOSTS = [HostSetting("a", cpus=4.0, memory_mb=1000.0), HostSetting("b", cpus=2.0, memory_mb=500.0)]


def settings(tmp_path: Path, **process: Any) -> DaemonSettings:
    raw = {
        "cluster": "c",
        "journal": {"sqlite": {"folder": "data"}},
        "backend": {"process": {"folder": "keeper", "hosts": [{"name": "a"}], **process}},
    }
    return parse(raw, tmp_path)


def test_what_the_machine_cannot_hold_stops_a_start_only_where_it_must(tmp_path):
    for mode, stops in (("enforce", True), ("try", False), ("off", False)):
        found = problem(settings(tmp_path, limits=mode), NAMES, find=lambda name: NOWHERE)
        assert bool(found) == stops, mode
    must = settings(tmp_path, limits="enforce")
    text = problem(must, NAMES, find=lambda name: NOWHERE)
    assert text.startswith("backend.process.limits: ") and "nothing is mounted" in text
    assert problem(must, NAMES, find=lambda name: FoundPlace(HERE)) == ""
    assert "no limit of cpu" in problem(
        must, NAMES, find=lambda name: FoundPlace(HERE, "no limit of cpu")
    )


def test_health_says_what_does_not_hold_and_only_then(tmp_path):
    tried = settings(tmp_path)
    note = limits_note(tried, NAMES, find=lambda name: NOWHERE)
    assert "nothing is mounted" in note and "memory is checked once a second" in note
    assert limits_note(tried, NAMES, find=lambda name: FoundPlace(HERE)) == ""
    off = settings(tmp_path, limits="off")
    assert limits_note(off, NAMES, find=lambda name: NOWHERE) == "", "as it was asked for"


def test_a_machine_that_cannot_be_asked_has_no_groups(tmp_path):
    def fails(name: str) -> FoundPlace:
        raise PermissionError(13, "Permission denied")

    assert "Permission denied" in limits_note(settings(tmp_path), NAMES, find=fails)


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


def test_what_is_reserved_is_no_part_of_a_host():
    made = less_reserved(HOSTS, HostReserved(cpus=0.5, memory_mb=100.0))
    assert [(one.cpus, one.memory_mb) for one in made] == [(3.5, 900.0), (1.5, 400.0)]
    assert less_reserved(HOSTS, HostReserved()) == HOSTS


def test_to_reserve_all_of_a_host_is_refused():
    with pytest.raises(BadSetting) as caught:
        less_reserved(HOSTS, HostReserved(cpus=2.0, memory_mb=-1.0))
    assert caught.value.texts == (
        "--host-reserved-cpus: 2 leaves nothing of the 2 of host b",
        "--host-reserved-memory-mb: must be ≥ 0 and finite, got -1.0",
    )


def test_the_minicluster_takes_them(tmp_path):
    base = ["minicluster", "--check", "--no-classic-ports", "--data-dir", str(tmp_path / "data")]
    base += ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--hosts", "1"]
    printed = typed(*base, "--host-reserved-cpus", "9", "--task-pids", "-1")
    assert "--host-reserved-cpus: 9 leaves nothing of the 4 of host" in printed.err
    assert "--task-pids: -1 is not between" in printed.err
    printed = typed(*base, "--host-reserved-cpus", "1", "--images", "refuse", "--limits", "try")
    assert printed.code == 0, printed.err
    assert "control groups" in printed.out
