"""The limits of the runs: each run that has some gets a control group, or a note that it has none.

Turns the limits of a request into a group that the run begins in, a group's end into the reason of
the run's, and removes groups that are left. A run that must not begin without its limits is refused
with the reason.

The places of groups are written down before the first group is made in one: a keeper that was
killed leaves groups, and its successor may have been started somewhere else.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from . import kinds, processes
from .disk import DISK, Disk, read_file, replace_file
from .group_roots import FoundRoot, NotLeft, find_root, prepare
from .groups import MEMORY, ControlGroups, GroupLimits, GroupRoot, GroupUsage
from .identity import keeper_id
from .kinds import KeeperRun
from .supervisor import say

ENFORCE, TRY, OFF = "enforce", "try", "off"
MODES = (ENFORCE, TRY, OFF)
# A shell alone is larger than some tasks' limits; the original's agents had the same floor.
MEMORY_FLOOR_MB = 32
WATCHER_MB = 16
PIDS_FLOOR = 16
"""The keeper itself is one of the processes in a group while it starts the run."""
PLACES = "groups"
LOOK_AGAIN_S = 60.0
_ROUND_MAX = 256
_CLOSE_TRIES, _CLOSE_PAUSE_S = 50, 0.01
_AMOUNT_MAX = 1e15
"""More than any machine has, and far from what a number of bytes or shares overflows at."""
_MB = 1024 * 1024


class LimitsUnavailable(Exception):
    """The run must not begin without its limits, and cannot have them."""


class InsideGroup(Exception):
    """The keeper cannot leave the group of another run.

    A process started now would belong there, and be killed with that run.
    """


class Limits:
    """The limits of all runs of one keeper. No place is searched before a run has limits."""

    def __init__(
        self,
        folder: str,
        *,
        disk: Disk = DISK,
        find: Callable[..., FoundRoot] = find_root,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._disk = disk
        self._find = find
        self._clock = clock
        self._groups: ControlGroups | None = None
        self._places: list[GroupRoot] = []
        self._unusable, self._look_again = "", 0.0
        self._said = ""
        self._of: dict[str, ControlGroups] = {}  # runs, until their groups are gone
        self._leaving: deque[str] = deque()
        self._stuck: ControlGroups | None = None
        self._checked: deque[str] = deque()

    # A keeper's start.

    def recover(self, runs: dict[str, KeeperRun]) -> None:
        """Take over the groups of live runs, and end all others that an earlier keeper left.

        Only groups of this very folder are ended: a copy of it names the groups of the original.
        """
        self._places = self._known()
        for place in self._places:
            groups = ControlGroups(place, self._disk)
            for name in self._tried(groups.names) or ():
                self._of[name] = groups
                run = runs.get(name)
                if run is not None:
                    run.grouped = True
                    self._checked.append(name)
                else:
                    self._end_group(name)

    def _known(self) -> list[GroupRoot]:
        try:
            read = json.loads(read_file(f"{self._folder}/{PLACES}", self._disk))
            found = [GroupRoot(int(one[0]), dict(one[1]), tuple(one[2])) for one in read]
            mine = self._name()
        except FileNotFoundError:
            return []
        except (OSError, ValueError, LookupError, TypeError) as trouble:
            say(f"the places of control groups cannot be read: {trouble}")
            return []
        return [
            place
            for place in found
            if all(os.path.basename(folder) == mine for folder in place.folders.values())
            and any(os.path.isdir(folder) for folder in place.folders.values())
        ]

    def _name(self) -> str:
        """Return a name that belongs to this folder and to no other one on this machine."""
        number = processes.folder_number(self._folder).replace(":", "-")
        return f"peloton-{keeper_id(self._folder, self._disk)}-{number}"

    # A run's start and end.

    def enter(self, run: KeeperRun) -> None:
        """Make the run's group and enter it. Raises LimitsUnavailable, InsideGroup.

        A run that may begin without limits gets a note if it has none.
        """
        wanted = limits_of(run)
        if self._stuck is not None:
            self._leave(self._stuck)
        if self._stuck is None and wanted.controllers:
            self._enter(run, wanted)
        if self._stuck is not None:
            raise InsideGroup("the keeper cannot leave the control group of another run")

    def _enter(self, run: KeeperRun, wanted: GroupLimits) -> None:
        must = run.limits["mode"] == ENFORCE
        try:
            groups = self._usable()
        except OSError as trouble:
            if self._stuck is not None:
                return  # for `enter` to refuse, as all other runs
            if must:
                raise LimitsUnavailable(f"no control group: {_why(trouble)}") from trouble
            if self._places:  # the machine has them: health says nothing of it
                run.note = f"no limits, no control group: {_why(trouble)}"
            return
        try:
            self._make(run, groups, wanted=wanted)
        except OSError as trouble:
            self._groups = None  # its place may be gone: look for it again
            if must:
                raise LimitsUnavailable(f"no control group: {_why(trouble)}") from trouble
            run.note = f"no limits, no control group: {_why(trouble)}"

    def _usable(self) -> ControlGroups:
        """Return the control groups; their absence is remembered for a while."""
        if self._groups is None:
            now = self._clock()
            if now < self._look_again:
                raise OSError(self._unusable)
            try:
                self._groups = self._prepared()
            except OSError as trouble:
                self._unusable, self._look_again = _why(trouble), now + LOOK_AGAIN_S
                raise
        return self._groups

    def _make(self, run: KeeperRun, groups: ControlGroups, *, wanted: GroupLimits) -> None:
        missing = groups.missing(wanted)
        if missing and run.limits["mode"] == ENFORCE:
            raise OSError(f"this machine gives no limit of {' and '.join(missing)}")
        self._of[run.run_id] = groups
        try:
            groups.make(run.run_id, wanted)
            groups.enter(run.run_id)
        except OSError:
            self.leave(run)
            self._end_group(run.run_id)
            raise
        run.grouped = True
        self._checked.append(run.run_id)

    def _prepared(self) -> ControlGroups:
        found = self._find(self._name(), disk=self._disk)
        if found.place is None:
            raise OSError(found.why)
        if found.place not in self._places:
            self._write_places([*self._places, found.place])
            self._places.append(found.place)
        try:
            return prepare(found, self._disk)
        except NotLeft as trouble:
            self._stuck = trouble.groups
            raise

    def _write_places(self, places: Iterable[GroupRoot]) -> None:
        data = json.dumps([[one.version, dict(one.folders), one.homes] for one in places])
        # Not by a relative path: while runs are started, the working folder is a sandbox.
        path = f"{self._folder}/{PLACES}"
        replace_file(path, data.encode(), disk=self._disk)

    def leave(self, run: KeeperRun) -> None:
        """Take the keeper out of the run's group, if it is in one."""
        groups = self._of.get(run.run_id)
        if groups is not None:
            self._leave(groups)

    def _leave(self, groups: ControlGroups) -> None:
        """Leave the groups; after a failure each later start and each round tries again."""
        try:
            groups.leave()
            self._stuck = None
        except OSError as trouble:
            self._stuck = groups
            self._say(f"the keeper cannot leave a group: {trouble}")

    def not_started(self, run: KeeperRun) -> None:
        """Remove the group of a run that was not started."""
        if run.grouped:
            self._end_group(run.run_id)

    def ended(self, run: KeeperRun) -> None:
        """Note the use of a run whose leader has ended, and end what it left behind."""
        if run.grouped:
            self._look(run)
            self._end_group(run.run_id)

    def kill(self, run: KeeperRun) -> None:
        """Send SIGKILL to every process in the run's group, in whatever session it is."""
        groups = self._of.get(run.run_id)
        if groups is not None and run.grouped:
            self._kill_group(run.run_id)

    def _look(self, run: KeeperRun) -> None:
        groups = self._of[run.run_id]
        used = self._tried(lambda: groups.usage(run.run_id)) or GroupUsage()
        if used.memory_peak_bytes:  # of all its processes; without it, of the largest one
            run.peak_mb = used.memory_peak_bytes / _MB
        if used.oom_kills and not run.over_limit and not run.kill_requested:
            limit_mb = memory_limit_mb(run)
            run.over_reason = kinds.OOM
            run.over_limit = f"out of memory: limit {limit_mb:g} MB, peak {run.peak_mb:.0f} MB"

    def _end_group(self, name: str) -> None:
        """Remove the group, at once if it is empty."""
        if not self._remove(name):
            self._kill_group(name)
            self._leaving.append(name)

    def _kill_group(self, name: str) -> None:
        groups = self._of[name]
        self._tried(lambda: groups.kill(name))

    def _remove(self, name: str) -> bool:
        groups = self._of[name]
        if self._tried(lambda: groups.remove(name)):
            del self._of[name]
            return True
        return False

    def admit(self, run: KeeperRun, pid: int) -> None:
        """Move a process that was started beside the run into the run's group, if it has one."""
        groups = self._of.get(run.run_id)
        if groups is not None and run.grouped:
            self._tried(lambda: groups.move(run.run_id, pid))

    # The round.

    def check(self, runs: dict[str, KeeperRun]) -> list[KeeperRun]:
        """Remove groups that are left; return live runs with a process killed at the limit.

        A bounded number of each is done: the next round goes on.
        """
        if self._stuck is not None:
            self._leave(self._stuck)
        for _ in range(min(len(self._leaving), _ROUND_MAX)):
            name = self._leaving.popleft()
            if name in self._of and not self._remove(name):
                self._kill_group(name)
                self._leaving.append(name)
        found: list[KeeperRun] = []
        for _ in range(min(len(self._checked), _ROUND_MAX)):
            name = self._checked.popleft()
            run = runs.get(name)
            if run is None or not run.live or run.over_limit:
                continue
            self._checked.append(name)
            if not self._of[name].form.kills_whole_group:
                self._look(run)
                if run.over_limit:
                    found.append(run)
        return found

    def close(self) -> None:
        """Remove the folders of the groups; called at the keeper's exit, without runs."""
        for name in [*self._leaving]:
            if name in self._of:
                self._remove(name)
        left = [ControlGroups(place, self._disk) for place in self._places]
        for _ in range(_CLOSE_TRIES):
            left = [groups for groups in left if self._tried(groups.close) is False]
            if not left:
                return
            # The kernel takes a process out of its group a little after its end was waited for.
            time.sleep(_CLOSE_PAUSE_S)

    def holds_memory(self, run: KeeperRun) -> bool:
        """Return whether the kernel limits this run's memory."""
        groups = self._of.get(run.run_id)
        return groups is not None and run.grouped and MEMORY in groups.place.folders

    def _tried(self, action: Callable[[], Any]) -> Any:
        """Return the action's result; None if it fails: the caller tries again later."""
        try:
            return action()
        except (OSError, ValueError) as trouble:
            self._say(str(trouble))
            return None

    def _say(self, text: str) -> None:
        """Log a text once: the failure may occur in every round."""
        if text != self._said:
            self._said = text
            say(f"control group: {text}")


def _why(trouble: OSError) -> str:
    where = f" ({trouble.filename})" if trouble.filename else ""
    return f"{trouble.strerror or trouble}{where}"


def memory_limit_mb(run: KeeperRun) -> float:
    """Return the memory limit of a run in MB; 0 is no limit.

    A watcher of several containers belongs to the run, and does not reduce the containers' memory.
    """
    if run.memory_mb <= 0:
        return 0.0
    return max(run.memory_mb, MEMORY_FLOOR_MB) + (WATCHER_MB if run.pod else 0)


def limits_of(run: KeeperRun) -> GroupLimits:
    """Return the limits that a group can enforce; none at all if the run wants none."""
    wanted = run.limits
    if wanted.get("mode", OFF) == OFF:
        return GroupLimits()
    return GroupLimits(
        memory_bytes=int(memory_limit_mb(run) * _MB),
        cpus=wanted["cpu"],
        cpu_quota=wanted["cpu_quota"],
        pids=max(wanted["pids"], PIDS_FLOOR) + bool(run.pod) if wanted["pids"] else 0,
    )


def amount_of(sent: Any) -> float:
    """Return a number that can be a limit. Raises ValueError, TypeError."""
    try:
        amount = float(sent)
    except OverflowError as trouble:
        raise ValueError("not an amount: too many digits") from trouble
    if not abs(amount) <= _AMOUNT_MAX:  # nor is it that of one that is no number
        raise ValueError(f"not an amount: {amount}")
    return amount


def read_limits(sent: Any) -> kinds.Record:
    """Return a request's limits, checked. Raises ValueError, LookupError, TypeError."""
    mode, cpu, pids = str(sent["mode"]), amount_of(sent["cpu"]), int(amount_of(sent["pids"]))
    disk_mb = amount_of(sent["disk_mb"])
    if mode not in MODES or not (cpu >= 0 and pids >= 0 and disk_mb >= 0):
        raise ValueError(f"not limits: {sent!r}")
    return {
        "mode": mode, "cpu": cpu, "cpu_quota": bool(sent["cpu_quota"]), "pids": pids,
        "disk_mb": disk_mb,
    }  # fmt: skip
