"""Control groups as files: which place is found, what is written, and what if that fails.

Version 2 stands here as a folder of files that the kernel would make; what of it is real on the
machine of the tests (moving, killing, removing) is tried as well. Real limits: test_limits.py.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from peloton.backends.keeper import groups as groups_module
from peloton.backends.keeper import kinds, limits
from peloton.backends.keeper.disk import Disk
from peloton.backends.keeper.ends import adopted_exit_of
from peloton.backends.keeper.group_roots import FoundRoot, find_root, hierarchies, prepare
from peloton.backends.keeper.groups import (
    V1,
    V2,
    ControlGroups,
    GroupLimits,
    GroupRoot,
    GroupUsage,
)
from peloton.backends.keeper.kinds import KeeperRun
from peloton.backends.keeper.requests import run_of as run_of_request
from peloton.backends.keeper_messages import RunLimits, RunRequest, wire_form

MOUNT2 = "35 30 0:31 / {0} rw - cgroup2 cgroup2 rw,nsdelegate\n"
FILES2 = ("memory.max", "memory.oom.group", "cpu.weight", "cpu.max", "pids.max", "cgroup.procs")
NOBODY = f"{1 << 30}\n"  # a process that there cannot be
COMMAND = {"value": "true", "shell": True, "arguments": []}
ALL = GroupLimits(memory_bytes=64 << 20, cpus=1.5, cpu_quota=True, pids=100)


class Kernel2(Disk):
    """A folder in which a new folder has the files of a group of version 2, as the kernel does it.

    `refuses`: the names of files that cannot be written, and with which error."""

    def __init__(self, files: tuple[str, ...] = FILES2) -> None:
        self.files = files
        self.refuses: dict[str, int] = {}

    def mkdir(self, path: str, mode: int) -> None:  # type: ignore[override]
        os.mkdir(path, mode)
        for name in (*self.files, "cgroup.subtree_control", "cgroup.controllers"):
            Path(path, name).touch()

    def rmdir(self, path: str) -> None:  # type: ignore[override]
        if not os.path.isdir(path):
            raise FileNotFoundError(errno.ENOENT, "", path)
        procs = Path(path, "cgroup.procs")
        busy = procs.exists() and procs.read_text().strip() not in ("", "0")  # "0" has left since
        if busy or any(one.is_dir() for one in Path(path).iterdir()):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        for one in Path(path).iterdir():
            one.unlink()
        os.rmdir(path)

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:  # type: ignore[override]
        number = self.refuses.get(os.path.basename(path))
        if number and flags & os.O_WRONLY:
            raise OSError(number, os.strerror(number), path)
        return os.open(path, flags | (os.O_TRUNC if flags & os.O_WRONLY else 0), mode)


def machine2(tmp_path: Path, own: str = "/user/session") -> tuple[Path, Path]:
    """A hierarchy with a group that gives its children all, and our own inside; its /proc."""
    top, kernel = tmp_path / "cgroup", Kernel2()
    top.mkdir()
    path = top
    for part in own.strip("/").split("/"):
        (path / "cgroup.subtree_control").write_text("cpu memory pids")
        path = path / part
        kernel.mkdir(str(path), 0o755)
        (path / "cgroup.type").write_text("domain")
        (path / "cgroup.controllers").write_text("cpu memory pids")
        (path / "cgroup.procs").write_text("17\n")
    (path / "cgroup.subtree_control").write_text("")
    (top / "cgroup.procs").write_text("1\n")
    (top / "cgroup.type").write_text("domain")
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "mountinfo").write_text(MOUNT2.format(top))
    (proc / "cgroup").write_text(f"0::{own}\n")
    return top, proc


def place2(tmp_path: Path, kernel: Kernel2) -> ControlGroups:
    top, proc = machine2(tmp_path)
    found = find_root("mine", proc=str(proc), disk=kernel)
    assert found.place is not None
    groups = ControlGroups(found.place, kernel)
    groups.open()
    return groups


def content(groups: ControlGroups, name: str) -> dict[str, str]:
    folder = Path(next(iter(groups.place.folders.values())), name)
    return {one.name: one.read_text() for one in folder.iterdir() if one.read_text()}


# ---- which place ----


def test_version_2_divides_the_nearest_group_upwards_that_gives_memory(tmp_path):
    top, proc = machine2(tmp_path)
    found = find_root("mine", proc=str(proc), disk=Kernel2())
    folders = dict.fromkeys(("memory", "cpu", "pids"), str(top / "user" / "mine"))
    assert found == FoundRoot(GroupRoot(2, folders, (str(top / "user/session"),)))


def test_a_group_of_version_2_without_processes_may_give_what_it_has(tmp_path):
    top, proc = machine2(tmp_path)
    (top / "user" / "cgroup.subtree_control").write_text("")
    (top / "user" / "cgroup.procs").write_text("")
    kernel = Kernel2()
    found = find_root("mine", proc=str(proc), disk=kernel)
    assert found.place is not None and found.place.folders["memory"] == str(top / "user/mine")
    ControlGroups(found.place, kernel).open()
    given = (top / "user" / "cgroup.subtree_control").read_text()
    assert set(given.split()) == {"+memory", "+cpu", "+pids"}


def test_without_a_group_that_gives_memory_there_is_no_place(tmp_path):
    top, proc = machine2(tmp_path, own="/session")
    (top / "cgroup.subtree_control").write_text("cpu pids")
    assert find_root("mine", proc=str(proc), disk=Kernel2()).place is None


def test_what_a_place_does_not_give_is_named(tmp_path):
    top, proc = machine2(tmp_path)
    (top / "user" / "cgroup.subtree_control").write_text("memory")
    assert find_root("mine", proc=str(proc), disk=Kernel2()).why == "no limit of cpu and pids"


def test_our_groups_of_version_1_are_found_in_each_hierarchy(tmp_path):
    for name in ("memory/a/b", "cpu,cpuacct", "pids"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "tasks").touch()
    mounts = "".join(
        f"3 3 0:3 {top} {tmp_path}/{name} rw - cgroup cgroup rw,{name}\n"
        for name, top in (("memory", "/"), ("cpu,cpuacct", "/docker/x"), ("pids", "/"))
    )
    (tmp_path / "mountinfo").write_text(mounts)
    (tmp_path / "cgroup").write_text("3:memory:/a/b\n2:cpu,cpuacct:/docker/x\n1:pids:/\n0::/\n")
    place = find_root("mine", proc=str(tmp_path)).place
    assert place is not None and place.version == 1
    assert place.folders == {
        "memory": f"{tmp_path}/memory/a/b/mine",
        "cpu": f"{tmp_path}/cpu,cpuacct/mine",
        "pids": f"{tmp_path}/pids/mine",
    }


def test_a_path_with_a_blank_is_read_as_the_kernel_writes_it():
    (found,) = hierarchies("3 3 0:3 / /a\\040b rw - cgroup2 none rw\n", "0::/x\n")
    assert found.own == "/a b/x"


def test_a_group_that_the_keeper_could_not_return_to_is_no_place(tmp_path):
    top, proc = machine2(tmp_path)
    (top / "user/session/cgroup.procs").unlink()
    assert find_root("mine", proc=str(proc), disk=Kernel2()).place is None


# ---- what is written ----


def test_limits_of_version_2(tmp_path):
    groups = place2(tmp_path, Kernel2())
    groups.make("r-0-1", ALL)
    assert content(groups, "r-0-1") == {
        "memory.max": str(64 << 20), "memory.oom.group": "1", "cpu.weight": "150",
        "cpu.max": "150000 100000", "pids.max": "100",
    }  # fmt: skip


def test_limits_of_version_1():
    found = {one.file: one.text for one in V1.settings(ALL)}
    assert found == {
        "memory.limit_in_bytes": str(64 << 20), "memory.memsw.limit_in_bytes": str(64 << 20),
        "cpu.shares": "1536", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000",
        "pids.max": "100",
    }  # fmt: skip


@pytest.mark.parametrize("form", [V1, V2])
def test_what_has_no_limit_is_not_written(form):
    assert not [*form.settings(GroupLimits())]
    without = [one.file for one in form.settings(GroupLimits(cpus=1.0))]
    assert without in (["cpu.shares"], ["cpu.weight"]), "a share, and no quota"


@pytest.mark.parametrize(
    ("cpus", "shares", "weight"), [(0.0001, "2", "1"), (1e6, "262144", "10000")]
)
def test_shares_stay_within_what_the_kernel_takes(cpus, shares, weight):
    assert [one.text for one in V1.settings(GroupLimits(cpus=cpus))] == [shares]
    assert [one.text for one in V2.settings(GroupLimits(cpus=cpus))] == [weight]


def test_a_group_that_cannot_be_limited_is_not_there(tmp_path):
    kernel = Kernel2()
    groups = place2(tmp_path, kernel)
    kernel.refuses["pids.max"] = errno.EACCES
    with pytest.raises(PermissionError):
        groups.make("r-0-1", ALL)
    assert groups.names() == []


def test_a_limit_that_was_written_in_part_is_none(tmp_path):
    """The rest of a number, written on its own, would be a much smaller limit."""

    class Short(Kernel2):
        def write(self, fd: int, data: bytes) -> int:  # type: ignore[override]
            return os.write(fd, data[:2] if data == b"67108864" else data)

    groups = place2(tmp_path, Short())
    with pytest.raises(OSError, match="a part was written"):
        groups.make("r-0-1", ALL)


def test_what_was_used_is_read_from_the_group(tmp_path):
    groups = place2(tmp_path, Kernel2((*FILES2, "memory.events", "memory.peak")))
    groups.make("r-0-1", ALL)
    folder = Path(groups.place.folders["memory"], "r-0-1")
    (folder / "memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 1\n")
    (folder / "memory.peak").write_text("1048576\n")
    assert groups.usage("r-0-1") == GroupUsage(2, 1 << 20)
    (folder / "memory.peak").unlink()
    assert groups.usage("r-0-1") == GroupUsage(2, 0), "a kernel before 5.19"


def test_a_process_of_another_namespace_gets_no_signal(tmp_path):
    groups = place2(tmp_path, Kernel2())
    groups.make("r-0-1", ALL)
    Path(groups.place.folders["memory"], "r-0-1", "cgroup.procs").write_text("0\n")
    assert groups.pids("r-0-1") == []


UNIFIED = Path("/sys/fs/cgroup/unified") if Path("/sys/fs/cgroup/unified").is_dir() else None


@pytest.mark.needs_root(
    "to write to control groups of version 2",
    possible=UNIFIED is not None and os.access(UNIFIED, os.W_OK),
)
def test_real_groups_of_version_2_are_entered_killed_and_removed() -> None:
    assert UNIFIED is not None
    name = f"peloton-test-{os.getpid()}"
    groups = ControlGroups(GroupRoot(2, {"none": f"{UNIFIED}/{name}"}, (str(UNIFIED),)))
    os.mkdir(f"{UNIFIED}/{name}")
    groups.make("r-0-1", GroupLimits())
    groups.enter("r-0-1")
    try:
        inside = groups.pids("r-0-1") == [os.getpid()]
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    finally:
        groups.leave()
    assert inside and groups.pids("r-0-1") == [child.pid]
    assert not groups.remove("r-0-1"), "it has a process"
    groups.kill("r-0-1")
    assert child.wait(60) == -signal.SIGKILL
    assert groups.remove("r-0-1") and groups.close()


# ---- what if there is none ----


def run_of(mode: str, memory_mb: float = 64.0, **wanted: object) -> KeeperRun:
    run = KeeperRun("r-0-1", "h", command={**COMMAND}, memory_mb=memory_mb)
    run.limits = {
        "mode": mode, "cpu": 1.0, "cpu_quota": False, "pids": 5, "disk_mb": 0.0, **wanted
    }  # fmt: skip
    return run


def limits_on(tmp_path: Path, kernel: Disk, find=None, **more) -> limits.Limits:
    _, proc = machine2(tmp_path)
    folder = tmp_path / "keeper"
    folder.mkdir()
    return limits.Limits(
        str(folder),
        disk=kernel,
        find=find or (lambda name, disk: find_root(name, proc=str(proc), disk=disk)),
        **more,
    )


def nowhere(name: str, disk: Disk) -> FoundRoot:
    return FoundRoot(None, "nothing is mounted")


def test_without_groups_a_run_that_must_have_one_is_refused_with_the_reason(tmp_path):
    made = limits_on(tmp_path, Kernel2(), nowhere)
    with pytest.raises(limits.LimitsUnavailable, match="^no control group: nothing is mounted$"):
        made.enter(run_of("enforce"))


@pytest.mark.parametrize("mode", ["try", "off"])
def test_without_groups_another_run_begins_without(tmp_path, mode):
    made, run = limits_on(tmp_path, Kernel2(), nowhere), run_of(mode)
    made.enter(run)
    assert not run.grouped and run.note == "", "health says it, not each run"
    assert not made.holds_memory(run)


def test_groups_are_not_looked_for_at_each_run(tmp_path):
    looks, now = [], [0.0]

    def find(name: str, disk: Disk) -> FoundRoot:
        looks.append(name)
        return FoundRoot(None, "nothing")

    made = limits_on(tmp_path, Kernel2(), find, clock=lambda: now[0])
    for now[0] in (1.0, 2.0, 60.9):
        made.enter(run_of("try"))
    assert len(looks) == 1
    now[0] = 61.1
    made.enter(run_of("try"))
    assert len(looks) == 2


def test_a_group_that_cannot_be_made_is_said_in_the_end_of_the_run(tmp_path):
    kernel = Kernel2()
    made, run = limits_on(tmp_path, kernel), run_of("try")
    made.enter(run_of("try", pids=50))
    kernel.refuses["pids.max"] = errno.EIO
    run.run_id = "r-1-1"
    made.enter(run)
    assert not run.grouped
    assert run.note.startswith("no limits, no control group: Input/output error (")
    again = run_of("try")
    made.enter(again)
    assert "Input/output error" in again.note, "each run says it, until groups can be made again"
    with pytest.raises(limits.LimitsUnavailable, match="Input/output error"):
        made.enter(run_of("enforce"))


def test_a_controller_that_is_missing_refuses_only_runs_that_must_have_it(tmp_path):
    made = limits_on(tmp_path, Kernel2())
    (tmp_path / "cgroup/user/cgroup.subtree_control").write_text("memory cpu")
    with pytest.raises(limits.LimitsUnavailable, match="gives no limit of pids$"):
        made.enter(run_of("enforce"))
    run = run_of("enforce", pids=0)
    made.enter(run)
    assert run.grouped


def test_a_keeper_that_cannot_leave_a_group_starts_nothing_more(tmp_path):
    kernel = Kernel2()
    made, run, other = limits_on(tmp_path, kernel), run_of("try"), run_of("off")
    made.enter(run)
    kernel.refuses["cgroup.procs"] = errno.EIO
    made.leave(run)
    assert run.grouped, "that run has begun where it belongs"
    with pytest.raises(limits.InsideGroup):
        made.enter(other)
    kernel.refuses.clear()
    made.enter(other)


def test_the_least_limits_leave_room_for_a_start():
    found = limits.limits_of(run_of("try", memory_mb=1.0, pids=1))
    assert (found.memory_bytes, found.pids) == (32 << 20, 16)
    assert limits.limits_of(run_of("off")) == GroupLimits()
    assert limits.limits_of(run_of("try", memory_mb=0.0, cpu=0.0, pids=0)) == GroupLimits()


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "perhaps"}, {"cpu": -1}, {"pids": "x"}, {"disk_mb": float("nan")},
        {"cpu": float("inf")}, {"cpu": 1e306}, {"pids": float("inf")}, {"disk_mb": 10**400},
    ],
)  # fmt: skip
def test_limits_that_are_none_are_refused(wrong):
    sent = {"mode": "try", "cpu": 1, "cpu_quota": False, "pids": 1, "disk_mb": 1}
    assert limits.read_limits(sent)["pids"] == 1
    with pytest.raises(ValueError):
        limits.read_limits({**sent, **wrong})


# ---- a successor ----


def test_a_successor_removes_groups_without_a_run_and_knows_the_others(tmp_path):
    kernel = Kernel2()
    made = limits_on(tmp_path, kernel)
    for number in range(2):
        run = run_of("try")
        run.run_id = f"r-{number}-1"
        made.enter(run)
    heir = limits.Limits(str(tmp_path / "keeper"), disk=kernel)
    alive = run_of("try")
    heir.recover({"r-0-1": alive})
    assert alive.grouped and heir.holds_memory(alive)
    left = {one.name for one in (tmp_path / "cgroup/user").glob("peloton-*/r-*")}
    assert left == {"r-0-1"}


def test_a_successor_still_finds_what_is_killed_for_memory(tmp_path):
    """Groups of version 1, of which the kernel kills one process only: nobody else looks."""
    kernel = Kernel2((*FILES2, "memory.oom_control", "memory.max_usage_in_bytes"))
    limits_on(tmp_path, kernel).enter(run_of("try"))
    places = tmp_path / "keeper" / limits.PLACES
    ((_, folders, controllers),) = json.loads(places.read_text())
    places.write_text(json.dumps([[1, {"memory": next(iter(folders.values()))}, controllers]]))
    heir = limits.Limits(str(tmp_path / "keeper"), disk=kernel)
    runs = {"r-0-1": run_of("try")}
    runs["r-0-1"].pid = int(NOBODY)
    heir.recover(runs)
    folder = next((tmp_path / "cgroup/user").glob("peloton-*/r-0-1"))
    (folder / "memory.max_usage_in_bytes").write_text("1048576\n")
    (folder / "memory.oom_control").write_text("oom_kill_disable 0\noom_kill 1\n")
    assert heir.check(runs) == [runs["r-0-1"]]
    assert runs["r-0-1"].over_reason == kinds.OOM


def test_the_keeper_of_a_copied_folder_leaves_the_groups_of_the_original(tmp_path):
    kernel = Kernel2()
    limits_on(tmp_path, kernel).enter(run_of("try"))
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in (tmp_path / "keeper").iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    limits.Limits(str(copy), disk=kernel).recover({})
    assert [*(tmp_path / "cgroup/user").glob("peloton-*/r-0-1")]


def test_a_place_is_tried_before_a_run_depends_on_it(tmp_path):
    kernel = Kernel2()
    _, proc = machine2(tmp_path)
    found = find_root("mine", proc=str(proc), disk=kernel)
    kernel.refuses["memory.oom.group"] = errno.EOPNOTSUPP
    with pytest.raises(OSError):
        prepare(found, kernel)
    kernel.refuses.clear()
    assert prepare(found, kernel).names() == []


class NoWayBack(Kernel2):
    """The group that the keeper was started in does not take it back, while `shut`."""

    shut = True

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:  # type: ignore[override]
        if self.shut and flags & os.O_WRONLY and path.endswith("/user/session/cgroup.procs"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return super().open(path, flags, mode)


@pytest.mark.parametrize("mode", ["try", "enforce"])
def test_no_run_begins_in_the_group_of_a_trial_that_was_not_left(tmp_path, mode):
    kernel, now = NoWayBack(), [0.0]
    made = limits_on(tmp_path, kernel, clock=lambda: now[0])
    for run in (run_of(mode), run_of("off")):
        with pytest.raises(limits.InsideGroup):
            made.enter(run)
    kernel.shut = False
    now[0] = limits.LOOK_AGAIN_S
    run = run_of("enforce")
    made.enter(run)
    assert run.grouped


def test_a_trial_of_a_killed_keeper_that_cannot_be_removed_yet_is_no_obstacle(tmp_path):
    kernel = Kernel2((*FILES2, "cgroup.kill"))
    groups = place2(tmp_path, kernel)
    groups.make("trial", GroupLimits())
    left = Path(groups.place.folders["memory"], "trial")
    (left / "cgroup.procs").write_text(NOBODY)
    found = FoundRoot(groups.place)
    assert prepare(found, kernel).names() == ["trial"]
    assert (left / "cgroup.kill").read_text() == "1"
    (left / "cgroup.procs").write_text("")
    assert prepare(found, kernel).names() == []


def test_groups_that_a_run_made_in_its_own_go_with_it(tmp_path):
    kernel = Kernel2()
    groups = place2(tmp_path, kernel)
    groups.make("r-0-1", ALL)
    top = Path(groups.place.folders["memory"], "r-0-1")
    for below in ("a", "a/b", "a/b/c", "d"):
        kernel.mkdir(str(top / below), 0o755)
    (top / "a/b/c/cgroup.procs").write_text(NOBODY)
    assert groups.pids("r-0-1") == [int(NOBODY)]
    assert not groups.remove("r-0-1"), "it has a process"
    assert not (top / "d").exists()
    (top / "a/b/c/cgroup.procs").write_text("")
    assert groups.remove("r-0-1") and not top.exists()


def test_many_groups_in_one_are_removed_over_several_calls(tmp_path, monkeypatch):
    monkeypatch.setattr(groups_module, "_BELOW_MAX", 8)
    kernel = Kernel2()
    groups = place2(tmp_path, kernel)
    groups.make("r-0-1", GroupLimits())
    top = Path(groups.place.folders["memory"], "r-0-1")
    for number in range(20):
        kernel.mkdir(str(top / f"{number}"), 0o755)
        kernel.mkdir(str(top / f"{number}/in"), 0o755)
    calls = 1
    while not groups.remove("r-0-1"):
        calls += 1
    assert 4 <= calls <= 6, "eight of them a call"


def test_the_folder_of_all_groups_goes_only_without_them(tmp_path):
    groups = place2(tmp_path, Kernel2())
    groups.make("r-0-1", ALL)
    assert not groups.close() and groups.names() == ["r-0-1"]


@pytest.mark.parametrize("outcome", [kinds.OOM, kinds.DISK_LIMIT, kinds.OVER_MEMORY])
def test_an_adopted_run_that_was_killed_for_a_limit_tells_it(outcome):
    run = run_of("try")
    run.adopted, run.over_limit, run.over_reason = True, "it used too much", outcome
    assert adopted_exit_of(run) == (kinds.FAILED, outcome, "it used too much")
    run.over_limit = ""
    assert adopted_exit_of(run) == (kinds.LOST, kinds.KEEPER_DIED, "")


def test_the_kill_that_was_asked_for_counts_more_than_memory(tmp_path):
    made = limits_on(tmp_path, Kernel2((*FILES2, "memory.events", "memory.peak")))
    run = run_of("try")
    made.enter(run)
    folder = next((tmp_path / "cgroup/user").glob("peloton-*/r-0-1"))
    (folder / "memory.events").write_text("oom_kill 1\n")
    (folder / "memory.peak").write_text("67108864")
    run.kill_requested = True
    made.ended(run)
    assert run.over_limit == "" and run.peak_mb == 64


def test_memory_that_was_exceeded_is_the_reason_of_the_end(tmp_path):
    made = limits_on(tmp_path, Kernel2((*FILES2, "memory.events", "memory.peak")))
    run = run_of("try")
    made.enter(run)
    folder = next((tmp_path / "cgroup/user").glob("peloton-*/r-0-1"))
    (folder / "memory.events").write_text("oom_kill 1\n")
    (folder / "memory.peak").write_text("67108864")
    made.ended(run)
    assert run.over_reason == kinds.OOM
    assert run.over_limit == "out of memory: limit 64 MB, peak 64 MB"
    assert not folder.exists()


def test_a_group_with_processes_is_killed_at_once(tmp_path):
    kernel = Kernel2()
    made, run = limits_on(tmp_path, kernel), run_of("try")
    made.enter(run)
    folder = next((tmp_path / "cgroup/user").glob("peloton-*/r-0-1"))
    (folder / "cgroup.procs").write_text(NOBODY)  # with it the folder cannot be removed
    (folder / "cgroup.kill").touch()
    made.ended(run)
    assert (folder / "cgroup.kill").read_text() == "1"
    (folder / "cgroup.procs").write_text("")
    made.check({})
    assert not folder.exists()


# ---- what a keeper is asked ----


@pytest.mark.parametrize("limited", [RunLimits("try"), None])
@pytest.mark.parametrize("memory_mb", [float("inf"), 1e305, float("nan")])
def test_a_run_with_an_infinite_amount_of_memory_is_refused(memory_mb, limited):
    wanted = RunRequest("r-0-1", "h", "true", limits=limited, memory_mb=memory_mb)
    with pytest.raises(ValueError, match="^not an amount: "):
        run_of_request("h", wire_form(wanted)[0])


def test_limits_survive_the_keeper():
    run = run_of("try", disk_mb=7.0)
    memory = kinds.Memory("")
    memory.fold([kinds.launch_record(run)])
    assert memory.runs["r-0-1"].limits == run.limits
    plain = kinds.launch_record(KeeperRun("r-0-1", "h", command=COMMAND, memory_mb=1.0))
    assert "limits" not in plain
    memory.fold([plain])
    assert memory.runs["r-0-1"].limits == {}
