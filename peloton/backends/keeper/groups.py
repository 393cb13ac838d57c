"""Control groups, by which the kernel holds a run and all its descendants to its limits.

Turns limits into groups of the kernel's version 2, or of version 1 (one hierarchy per controller),
and reads the use of a group.

A process begins inside its group: the keeper enters, spawns, and leaves. Its children are born
where it is, so no instruction of theirs runs outside. In version 1 the keeper writes to `tasks`:
moving a single thread takes no lock of the whole machine. Version 2 has no such way for groups with
memory, and the kernel may wait some milliseconds for the first of several moves.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from .disk import DISK, Disk, read_file

MEMORY, CPU, PIDS = "memory", "cpu", "pids"
CONTROLLERS = (MEMORY, CPU, PIDS)
CPU_PERIOD_US = 100_000
_KILL_PASSES_MAX = 8
_BELOW_MAX = 512
"""So many groups that a run has made in its own are looked at in one call."""
# What reading a group below says where it is gone, or where the one above lists its processes.
_NOT_READ = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP)
_SHARES_MIN, _SHARES_MAX, _SHARES_PER_CPU = 2, 262_144, 1024
_WEIGHT_MIN, _WEIGHT_MAX, _WEIGHT_PER_CPU = 1, 10_000, 100


class GroupLimits(NamedTuple):
    """The limits of a group; 0 is no limit.

    `cpus` is a share if others want the processors as well, and with `cpu_quota` also the maximum.
    """

    memory_bytes: int = 0
    cpus: float = 0.0
    cpu_quota: bool = False
    pids: int = 0

    @property
    def controllers(self) -> tuple[str, ...]:
        """The controllers that enforce these limits."""
        wanted = ((MEMORY, self.memory_bytes), (CPU, self.cpus), (PIDS, self.pids))
        return tuple(name for name, amount in wanted if amount)


class GroupUsage(NamedTuple):
    """The use of a group. `oom_kills`: processes that the kernel killed at the memory limit."""

    oom_kills: int = 0
    memory_peak_bytes: int = 0


class GroupSetting(NamedTuple):
    """A file and its content. An optional one does not exist on every kernel."""

    controller: str
    file: str
    text: str
    optional: bool = False


class GroupForm(NamedTuple):
    """The differences between the two versions of the kernel's interface."""

    version: int
    move_file: str
    settings: Callable[[GroupLimits], Iterator[GroupSetting]]
    oom_file: str
    peak_file: str
    kills_whole_group: bool  # at the memory limit; else one process


def _v1_settings(limits: GroupLimits) -> Iterator[GroupSetting]:
    if limits.memory_bytes:
        text = str(limits.memory_bytes)
        yield GroupSetting(MEMORY, "memory.limit_in_bytes", text)
        # With swap, the other limit alone would only make the run slow.
        yield GroupSetting(MEMORY, "memory.memsw.limit_in_bytes", text, optional=True)
    if limits.cpus:
        shares = _within(limits.cpus * _SHARES_PER_CPU, _SHARES_MIN, most=_SHARES_MAX)
        yield GroupSetting(CPU, "cpu.shares", str(shares))
    if limits.cpus and limits.cpu_quota:
        yield GroupSetting(CPU, "cpu.cfs_period_us", str(CPU_PERIOD_US))
        yield GroupSetting(CPU, "cpu.cfs_quota_us", str(_quota_us(limits)))
    if limits.pids:
        yield GroupSetting(PIDS, "pids.max", str(limits.pids))


def _v2_settings(limits: GroupLimits) -> Iterator[GroupSetting]:
    if limits.memory_bytes:
        yield GroupSetting(MEMORY, "memory.max", str(limits.memory_bytes))
        yield GroupSetting(MEMORY, "memory.swap.max", "0", optional=True)
        yield GroupSetting(MEMORY, "memory.oom.group", "1")
    if limits.cpus:
        weight = _within(limits.cpus * _WEIGHT_PER_CPU, _WEIGHT_MIN, most=_WEIGHT_MAX)
        yield GroupSetting(CPU, "cpu.weight", str(weight))
    if limits.cpus and limits.cpu_quota:
        yield GroupSetting(CPU, "cpu.max", f"{_quota_us(limits)} {CPU_PERIOD_US}")
    if limits.pids:
        yield GroupSetting(PIDS, "pids.max", str(limits.pids))


def _within(amount: float, least: int, *, most: int) -> int:
    return max(least, min(most, round(amount)))


def _quota_us(limits: GroupLimits) -> int:
    """Return the cpu quota; the kernel refuses less than a millisecond."""
    return max(1000, round(limits.cpus * CPU_PERIOD_US))


V1 = GroupForm(1, "tasks", _v1_settings, "memory.oom_control", "memory.max_usage_in_bytes", False)
V2 = GroupForm(2, "cgroup.procs", _v2_settings, "memory.events", "memory.peak", True)
FORMS = {form.version: form for form in (V1, V2)}


class GroupRoot(NamedTuple):
    """The place of groups: the folder of each controller, and the keeper's own group."""

    version: int
    folders: Mapping[str, str]
    homes: tuple[str, ...]


class ControlGroups:
    """The groups in one place. All methods may raise OSError."""

    def __init__(self, place: GroupRoot, disk: Disk = DISK) -> None:
        self.place = place
        self.form = FORMS[place.version]
        self._disk = disk
        # In version 2, and of controllers mounted together, it is one folder.
        self._folders = [*dict.fromkeys(place.folders.values())]

    def missing(self, limits: GroupLimits) -> list[str]:
        """Return the controllers that these limits need and the place lacks."""
        return [name for name in limits.controllers if name not in self.place.folders]

    def open(self) -> None:
        """Make the folders of the groups."""
        processors = os.cpu_count() or 1
        for folder in self._folders:
            if self.form is V2:
                self._give(os.path.dirname(folder))
            try:
                self._disk.mkdir(folder, 0o755)
            except FileExistsError:
                pass  # an earlier keeper's
            if self.form is V2:
                self._give(folder)
        # All groups together count as much as the machine, not as one process beside the others.
        for setting in self.form.settings(GroupLimits(cpus=processors)):
            self._set("", setting)

    def make(self, name: str, limits: GroupLimits) -> None:
        """Make an empty group, with its limits; none if that fails."""
        try:
            for folder in self._folders:
                self._disk.mkdir(f"{folder}/{name}", 0o755)
            for setting in self.form.settings(limits):
                self._set(name, setting)
        except OSError:
            self.remove(name)
            raise

    def enter(self, name: str) -> None:
        """Move this process into the group; after a failure it may be in a part of it."""
        for folder in self._folders:
            self._write(f"{folder}/{name}/{self.form.move_file}", "0")

    def move(self, name: str, pid: int) -> None:
        for folder in self._folders:
            self._write(f"{folder}/{name}/{self.form.move_file}", str(pid))

    def leave(self) -> None:
        """Move this process back to its own group; all is tried, the first error is raised."""
        trouble: OSError | None = None
        for home in self.place.homes:
            try:
                self._write(f"{home}/{self.form.move_file}", "0")
            except OSError as error:
                trouble = trouble or error
        if trouble is not None:
            raise trouble

    def usage(self, name: str) -> GroupUsage:
        """Return the use so far; nothing if memory is not accounted for."""
        folder = self.place.folders.get(MEMORY)
        if folder is None:
            return GroupUsage()
        kills = 0
        for line in self._read(f"{folder}/{name}/{self.form.oom_file}").splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                kills = int(value)
        try:
            peak = int(self._read(f"{folder}/{name}/{self.form.peak_file}"))
        except FileNotFoundError:  # an older kernel of version 2
            peak = 0
        return GroupUsage(kills, peak)

    def pids(self, name: str) -> list[int]:
        """Return the processes in the group and in those below it, in any of the folders.

        A run of root may have made groups below. A process of another namespace is shown as 0,
        which as the target of a signal would be our own process group.
        """
        found: dict[int, None] = {}
        for folder in self._folders:
            top = f"{folder}/{name}"
            for path in [*self._below(top), top]:
                try:
                    pids = map(int, self._read(f"{path}/cgroup.procs").split())
                except OSError as trouble:
                    if path == top or trouble.errno not in _NOT_READ:
                        raise
                    continue
                found.update((pid, None) for pid in pids if pid > 0)
        return [*found]

    def kill(self, name: str) -> None:
        """Kill every process in the group but this one. A killed process stays for a while."""
        try:
            if self.form is V2 and os.getpid() not in self.pids(name):
                self._write(f"{self._folders[0]}/{name}/cgroup.kill", "1")
                return
        except FileNotFoundError:
            pass  # an older kernel
        if PIDS in self.place.folders:  # else a process that forks could outrun the loop
            self._write(f"{self.place.folders[PIDS]}/{name}/pids.max", "0")
        for _ in range(_KILL_PASSES_MAX):
            others = [pid for pid in self.pids(name) if pid != os.getpid()]
            for pid in others:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            if not others:
                return

    def remove(self, name: str) -> bool:
        """Remove the group and those below it; return whether it is gone. One with
        processes stays."""
        gone = True
        for folder in self._folders:
            path = f"{folder}/{name}"
            if not self._rmdir(path):
                for below in self._below(path):
                    self._rmdir(below)
                gone = self._rmdir(path) and gone
        return gone

    def close(self) -> bool:
        """Remove the folders of the groups; return whether all are gone."""
        gone = True
        for folder in self._folders:
            gone = self._rmdir(folder) and gone
        return gone

    def names(self) -> list[str]:
        """Return the groups that exist, in any of the folders."""
        found: dict[str, None] = {}
        for folder in self._folders:
            try:
                with self._disk.scandir(folder) as entries:
                    found.update((one.name, None) for one in entries if one.is_dir())
            except FileNotFoundError:
                continue
        return [*found]

    def _below(self, path: str) -> list[str]:
        """Return groups below this one, each before its parent, and a bounded number.

        A walk in depth reaches one that can be removed, so the next call finds others.
        """
        found: list[str] = []
        todo = [path]
        while todo and len(found) <= _BELOW_MAX:
            found.append(todo.pop())
            try:
                with self._disk.scandir(found[-1]) as entries:
                    inside = (one.path for one in entries if one.is_dir(follow_symlinks=False))
                    todo += islice(inside, _BELOW_MAX)
            except FileNotFoundError:
                continue
        return found[:0:-1]

    def _rmdir(self, path: str) -> bool:
        """Remove a folder; return whether it is gone."""
        try:
            self._disk.rmdir(path)
        except FileNotFoundError:
            return True
        except OSError as trouble:
            if trouble.errno != errno.EBUSY:
                raise
            return False
        return True

    def _give(self, folder: str) -> None:
        """Give the children of the folder our controllers."""
        path = f"{folder}/cgroup.subtree_control"
        given = self._read(path).split()
        wanted = [name for name in self.place.folders if name not in given]
        if wanted:
            self._write(path, " ".join(f"+{name}" for name in wanted))

    def _set(self, name: str, setting: GroupSetting) -> None:
        folder = self.place.folders.get(setting.controller)
        if folder is None:
            return
        try:
            self._write(f"{folder}/{name}/{setting.file}", setting.text)
        except FileNotFoundError:
            if not setting.optional:
                raise

    def _write(self, path: str, text: str) -> None:
        descriptor = self._disk.open(path, os.O_WRONLY)
        try:
            # Each write is an order of its own: the rest of a number would be another number.
            if self._disk.write(descriptor, text.encode()) != len(text):
                raise OSError(errno.EIO, "a part was written", path)
        finally:
            self._disk.close(descriptor)

    def _read(self, path: str) -> str:
        return read_file(path, self._disk).decode()
