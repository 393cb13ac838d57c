"""Volumes of real runs: directories beside the sandboxes, which outlive runs and keepers.

Tests wait for words with a deadline, never for a time to pass.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace as replace_run
from pathlib import Path

import pytest
from msgspec.structs import replace

from peloton.actors.host import messages as m
from peloton.actors.host.machine_messages import RemoveVolumes, VolumeConfig, VolumesRemoved
from peloton.actors.host.run_spec import Container
from peloton.actors.task.messages import End
from peloton.backends import volumes as volume_folders
from peloton.backends.keeper import volumes
from peloton.backends.keeper.engine import ContainerSettings, create_arguments
from peloton.backends.keeper.kinds import KeeperRun, Memory, launch_record
from peloton.backends.keeper.requests import MALFORMED, BadRequest, run_of
from peloton.backends.keeper.secret_files import RunSecret
from peloton.backends.keeper_messages import (
    PodPart,
    RunContainer,
    RunLimits,
    RunPod,
    RunRequest,
    RunVolume,
    wire_form,
)
from tests.backends.keeper.conftest import until
from tests.backends.keeper.test_backend import HOST, OTHER, Machine, start

VOLUME = VolumeConfig("/deep/data", 1)
COUNT = 'read n < deep/data/count; echo $((n + 1)) > "$PELOTON_VOLUME/count"'
WORK = f"test -e deep/data/count || echo 0 > deep/data/count; {COUNT}"


@pytest.fixture
def machine(folder: Path) -> Iterator[Machine]:
    made = Machine(folder)
    yield made
    made.backend.close()


def with_volume(run: str, value: str = WORK) -> m.StartRun:
    one = start(run, value)
    return replace(one, spec=replace(one.spec, volume=VOLUME))


def ran(machine: Machine, run: str, *, host: object = HOST) -> m.RunEnd:
    machine.order(m.StartRuns(host, 1, (with_volume(run),)))  # type: ignore[arg-type]
    (end,) = machine.hosts.next_report(m.RunsEnded, to=host).ends  # type: ignore[arg-type]
    assert end.outcome.end == End.SUCCEEDED, end
    return end  # type: ignore[no-any-return]


def test_a_volume_outlives_runs_and_belongs_to_one_host(machine: Machine, folder: Path) -> None:
    count = folder / "volumes" / "a" / "j-0" / "count"
    for run in (1, 2, 3):
        ran(machine, f"j-0-{run}")
        assert count.read_text() == f"{run}\n"
    link = folder / "runs" / "j-0-3" / "deep" / "data"
    assert link.is_symlink() and link.resolve() == count.parent.resolve()
    ran(machine, "j-1-1")
    ran(machine, "j-0-4", host=OTHER)
    assert (folder / "volumes" / "b" / "j-0" / "count").read_text() == "1\n"
    assert (folder / "volumes").stat().st_mode & 0o077 == 0


def test_a_volume_that_was_removed_begins_empty(machine: Machine, folder: Path) -> None:
    ran(machine, "j-0-1")
    ran(machine, "j-1-1")
    machine.order(RemoveVolumes(HOST, 1, ("j-0", "j-7")))
    assert machine.hosts.next_report(VolumesRemoved).volumes == ("j-0", "j-7")
    assert [one.name for one in (folder / "volumes" / "a").iterdir()] == ["j-1"]
    ran(machine, "j-0-2")
    assert (folder / "volumes" / "a" / "j-0" / "count").read_text() == "1\n"


def test_an_older_owner_removes_nothing(machine: Machine, folder: Path) -> None:
    ran(machine, "j-0-1")
    machine.order(m.ListRuns(HOST, 5), RemoveVolumes(HOST, 4, ("j-0",)))
    assert (folder / "volumes" / "a" / "j-0").exists()


def test_an_order_on_its_way_from_a_former_owner_removes_nothing(
    machine: Machine, folder: Path
) -> None:
    """It does not know that it is no owner any more: the keeper does."""
    ran(machine, "j-0-1")
    successor = Machine(folder)
    try:
        successor.order(m.ListRuns(HOST, 2))
        successor.hosts.next_report(m.RunsListed)
        machine.order(RemoveVolumes(HOST, 1, ("j-0",)), m.ListRuns(OTHER, 1))
        machine.hosts.next_report(m.RunsListed, to=OTHER)
        assert (folder / "volumes" / "a" / "j-0").exists()
    finally:
        successor.backend.close()


def test_a_volume_that_a_run_has_is_not_removed(machine: Machine, folder: Path) -> None:
    machine.order(m.StartRuns(HOST, 1, (with_volume("j-0-1", "exec sleep 600"),)))
    machine.hosts.next_report(m.RunsStarted)
    machine.order(RemoveVolumes(HOST, 1, ("j-0", "j-1")))
    assert machine.hosts.next_report(VolumesRemoved).volumes == ("j-1",)
    assert (folder / "volumes" / "a" / "j-0").exists()
    machine.order(m.StopRuns(HOST, 1, ("j-0-1",), 5.0))
    machine.hosts.next_report(m.RunsEnded)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> volumes.VolumeFolders:
    """Of a keeper, which works in its folder."""
    monkeypatch.chdir(tmp_path)
    return volumes.VolumeFolders(str(tmp_path))


def test_what_cannot_be_removed_is_not_said_to_be_gone(
    tmp_path: Path, folders: volumes.VolumeFolders
) -> None:
    (tmp_path / "volumes" / "a" / "j-0").mkdir(parents=True)
    (tmp_path / "volumes" / ".removed").touch()
    assert folders.remove(["a/j-0", "a/j-1"]) == ["a/j-1"]


def test_a_volume_that_its_run_has_closed_is_removed(
    tmp_path: Path, folders: volumes.VolumeFolders
) -> None:
    closed = tmp_path / "volumes" / "a" / "j-0"
    closed.mkdir(parents=True)
    closed.chmod(0o500)
    assert folders.remove(["a/j-0"]) == ["a/j-0"]
    assert not closed.exists()


@pytest.mark.parametrize("name", ["../runs", ".removed/j-0.0", "a/..", "a", "/a/b"])
def test_nothing_else_is_removed(folders: volumes.VolumeFolders, name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a volume"):
        folders.remove([name])


def test_every_host_has_a_folder_of_its_own() -> None:
    """Whatever its name is, the keeper takes it for the name of a folder."""
    hosts = ["a", "_a", "-a", ".", "..", ".removed", "~a", "a~", "a/b", "%2E", "a b", "ä"]
    found = [name for host in hosts for name in volume_folders.names_at_keeper(host, ["j-0"])]
    assert len({*found}) == len(hosts)
    for name in found:
        assert volumes.volume_of({"name": name, "path": "x", "mb": 1})["name"] == name


def test_what_an_earlier_daemon_has_put_away_is_deleted(folder: Path) -> None:
    left = folder / "volumes" / ".removed" / "j-0.0"
    left.mkdir(parents=True)
    machine = Machine(folder)
    machine.backend.close()
    until(lambda: not left.exists(), "the folder is deleted")
    assert left.parent.exists(), "something may be put into it at any time"


def test_a_run_is_not_started_without_its_volume(machine: Machine, folder: Path) -> None:
    (folder / "volumes").touch()
    machine.order(m.StartRuns(HOST, 1, (with_volume("j-0-1"),)))
    (end,) = machine.hosts.next_report(m.RunsEnded).ends
    assert (end.outcome.end, end.outcome.system) == (End.LOST, True)
    assert end.outcome.message.startswith("volume: ")


REQUEST = RunRequest(
    "r-0-1",
    "h",
    "true",
    memory_mb=7.0,
    limits=RunLimits("enforce"),
    container=RunContainer("/usr/bin/podman", "image"),
    volume=RunVolume("h/r-0", "/data", 5.0),
)


def test_a_request_is_read_as_it_was_written() -> None:
    form, _ = wire_form(REQUEST)
    run = run_of("h", form)
    assert run.volume == {"name": "h/r-0", "path": "/data", "mb": 5.0}
    assert (run.memory_mb, run.container["image"]) == (7.0, "image") and run.limits
    memory = Memory("boot")
    memory.fold([launch_record(run)])
    assert memory.runs["r-0-1"].volume == run.volume


@pytest.mark.parametrize("path", ["stdout", "/preempted", "checkpointed/x", "web.stdout/x"])
def test_a_volume_is_no_file_of_its_run(path: str) -> None:
    pod = RunPod((PodPart("web", "true"), PodPart("log", "true")))
    run = replace_run(REQUEST, container=None, pod=pod, volume=RunVolume("h/r-0", path, 1.0))
    with pytest.raises(BadRequest, match="is that of a file of the run"):
        run_of("h", wire_form(run)[0])


def test_a_pod_has_one_volume_for_all_its_containers(machine: Machine, folder: Path) -> None:
    """Each finds it in its sandbox and by its variable; the next run has what they left."""
    one = with_volume("j-0-1")
    words = 'echo {0} >> deep/data/{0}; test -e "$PELOTON_VOLUME/{0}"'
    parts = (
        Container("first", words.format("first"), init=True),
        *(Container(name, words.format(name)) for name in ("web", "log")),
    )
    spec = replace(one.spec, containers=parts)
    for run in ("j-0-1", "j-0-2"):
        machine.order(m.StartRuns(HOST, 1, (replace(one, run=run, spec=spec),)))
        (end,) = machine.hosts.next_report(m.RunsEnded).ends
        assert end.outcome.end == End.SUCCEEDED, end
    volume = folder / "volumes" / "a" / "j-0"
    found = {name.name: name.read_text() for name in volume.iterdir()}
    assert found == {name: f"{name}\n" * 2 for name in ("first", "web", "log")}


def test_a_run_may_have_secrets_and_a_volume() -> None:
    form, _ = wire_form(replace_run(REQUEST, secrets=(RunSecret("token", b"x"),)))
    run = run_of("h", form)
    assert (run.memory_mb, run.container["image"]) == (7.0, "image") and run.limits
    assert run.volume and run.secrets == (RunSecret("token", b"x"),)


@pytest.mark.parametrize(
    ("name", "path"),
    [("r-0", "/data"), ("../r-0", "/d"), ("h/..", "/d"), ("h/r-0", "/a/../b"), ("h/r-0", "")],
)
def test_a_name_or_path_that_leads_elsewhere_is_malformed(name: str, path: str) -> None:
    with pytest.raises(MALFORMED):
        volumes.volume_of({"name": name, "path": path, "mb": 1})


@pytest.mark.parametrize("path", ["data/link/token", "/data", "data/./x"])
def test_no_secret_is_put_into_a_volume(path: str) -> None:
    """Its account may have made `link` there, to a folder of root."""
    with pytest.raises(BadRequest):
        run_of("h", wire_form(replace_run(REQUEST, secrets=(RunSecret(path, b"x"),)))[0])


def test_a_secret_may_be_beside_a_volume() -> None:
    request = replace_run(REQUEST, secrets=(RunSecret("data2", b"x"),))
    run = run_of("h", wire_form(request)[0])
    assert run.volume["path"] == "/data" and run.secrets == request.secrets


@pytest.mark.parametrize(("path", "inside"), [("/data", "/data"), ("data", "/sandbox/data")])
def test_a_container_has_it_mounted(path: str, inside: str) -> None:
    run = KeeperRun(
        "r-0-1", "h", command={"value": "true", "shell": True, "arguments": []}, memory_mb=0.0
    )
    run.container = {"engine": "/usr/bin/podman", "image": "image"}
    run.volume = {"name": "h/r-0", "path": path, "mb": 1.0}
    found = create_arguments(run, ContainerSettings("k", "/k/runs/r", {}, "/k/volumes/h/r-0"))
    (mounted,) = [one for one in found if one.startswith("--volume=/k/volumes")]
    prefix, _, where = mounted.rpartition(":")
    assert prefix == "--volume=/k/volumes/h/r-0"
    assert where == inside or (not os.path.isabs(path) and where.endswith("/data"))
