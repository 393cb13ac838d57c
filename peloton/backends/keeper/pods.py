"""Runs that are pods of several containers: starting, signalling and reading their watchers.

Turns a run into a watcher (`pod_run.py`), and the watcher's file into the states of the containers.
A watcher that was killed is not replaced: its run is over.
"""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from . import pod_run, processes
from .accounts import Account
from .disk import DISK, Disk, make_folder, read_file
from .kinds import CONTAINERS, KeeperRun, Record, started_event
from .processes import SpawnFailed
from .programs import called, program_of
from .watchers import Watchers, signal_watcher

FOLDER = "pods"
PARTS_MAX = 64
SETTLED_S = 1.0
"""After which a file has another time of its last change than one that replaces it."""
NAME_VARIABLE = "PELOTON_CONTAINER_NAME"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def parts_of(sent: Record) -> list[Record]:
    """Return the containers of a request, checked: a name is used for files. Raises ValueError,
    LookupError, TypeError, AttributeError."""
    parts: list[Record] = [
        {
            "name": str(one["name"]),
            "init": bool(one["init"]),
            "value": str(one["value"]),
            "shell": bool(one["shell"]),
            "arguments": [str(argument) for argument in one["arguments"]],
            "environment": {str(k): str(v) for k, v in one["environment"].items()},
        }
        for one in sent["containers"]
    ]
    names = {part["name"] for part in parts}
    good = len(names) == len(parts) <= PARTS_MAX and all(_NAME.fullmatch(name) for name in names)
    if not good or all(part["init"] for part in parts):
        raise ValueError(f"not the containers of a pod: {sorted(names)}")
    return sorted(parts, key=lambda part: not part["init"])


class _Look(NamedTuple):
    """The last content of a watcher's file, with a stamp that shows a change."""

    stamp: tuple[int, int, int] | None = None
    told: Record = {}


class Pods:
    """The pods of one keeper. Nothing is made before there is one."""

    def __init__(self, folder: str, *, disk: Disk = DISK) -> None:
        self._folder = folder
        self._disk = disk
        self._watchers = Watchers(pod_run, folder)
        self._made = False
        self._asked: dict[str, None] = {}
        self.running: dict[str, KeeperRun] = {}
        """Those that have not ended."""
        self._looks: dict[str, _Look] = {}

    def recover(self, runs: Iterable[KeeperRun]) -> None:
        """Take over pods that go on, and forget those that are over, at the start of a keeper."""
        for run in runs:
            if run.pod and run.end is None:
                self.running[run.run_id] = run
            else:
                self.forget(run)

    def start(self, run: KeeperRun, sandbox: str, *, base: Mapping[str, str]) -> int:
        """Start the watcher of a pod; return its pid. Raises SpawnFailed."""
        account: Account | None = run.command.get("account")
        told = {
            "status": self._file(run),
            "sandbox": f"{self._folder}/{sandbox}",
            "account": account,
            "grace_s": run.command["grace_s"],
            "containers": [
                self._told(run, part, sandbox=sandbox, base=base) for part in _parts(run)
            ],
        }
        try:
            if not self._made:
                make_folder(f"{self._folder}/{FOLDER}", self._disk)
                self._made = True
            pid = self._watchers.spawn(told, run)
        except OSError as trouble:
            raise SpawnFailed(f"spawn: {trouble.strerror}", status=None) from trouble
        self.running[run.run_id] = run
        return pid

    def asks(self, run: KeeperRun, number: int) -> bool:
        """Ask the watcher to pass a signal on; return whether it was asked.

        To kill its containers it is asked only once: it must not be killed before them, and may not
        be obeying.
        """
        if number == signal.SIGKILL:
            if run.run_id in self._asked:
                return False
            self._asked[run.run_id] = None
        signal_watcher(run, number)
        return True

    def look(self) -> list[Record]:
        """Return the changes of pods since the last look, as events.

        They are pods whose containers have all started, and pods that go on of which some
        containers have begun or ended.
        """
        found: list[Record] = []
        for run in [*self.running.values()]:
            if run.end is not None:
                self._drop(run)
                continue
            before = self._looks.get(run.run_id, _Look()).told
            told = self._looked_at(run)
            was_ready, run.ready_at = run.ready_at, told.get("ready_at", 0.0)
            if run.ready_at and not was_ready:
                found.append(started_event(run))
            moved = told.get("containers") != before.get("containers")
            if moved and not told["over"]:
                found.append(containers_event(run, told))
        return found

    def _looked_at(self, run: KeeperRun) -> Record:
        """Return the watcher's last report, as `told`; read only if it may have changed."""
        last = self._looks.get(run.run_id, _Look())
        try:
            at = self._disk.stat(self._file(run))
        except OSError:
            return last.told  # nothing has been told yet
        stamp = at.st_ino, at.st_size, at.st_mtime_ns
        if stamp == last.stamp:
            return last.told
        told = self.told(run)
        # Files that follow each other closely may have the same stamp, and are read each time.
        settled = told and abs(time.time() - at.st_mtime) > SETTLED_S
        self._looks[run.run_id] = _Look(stamp if settled else None, told or last.told)
        return told or last.told

    def told(self, run: KeeperRun) -> Record:
        """Return the watcher's last report; nothing before the first."""
        try:
            found = json.loads(read_file(self._file(run), self._disk))
            return found if isinstance(found, dict) else {}
        except (OSError, ValueError):
            return {}

    def listed(self, run: KeeperRun) -> Record:
        """Return what a list has of a running pod, beyond what it has of every run."""
        if not (run.pod and run.live):
            return {}
        return {"containers": container_ends(run, self.told(run))}

    def ended(self, run: KeeperRun) -> Record:
        """Return the last report of a watcher that has ended."""
        self._drop(run)
        self._asked.pop(run.run_id, None)
        told = self.told(run)
        run.ready_at = told.get("ready_at", 0.0)
        return told

    def forget(self, run: KeeperRun) -> None:
        """Remove the files of a pod whose end is in the journal."""
        if not run.pod:
            return
        for suffix in ("", ".new"):
            try:
                self._disk.unlink(self._file(run) + suffix)
            except OSError:
                continue  # there is none, or the next keeper removes it

    def _drop(self, run: KeeperRun) -> None:
        self.running.pop(run.run_id, None)
        self._looks.pop(run.run_id, None)

    def _file(self, run: KeeperRun) -> str:
        return f"{self._folder}/{FOLDER}/{run.run_id}"

    def _told(
        self, run: KeeperRun, part: Record, *, sandbox: str, base: Mapping[str, str]
    ) -> Record:
        program = program_of(run, sandbox, folder=self._folder, base=base, own=part["environment"])
        value, arguments = called(part)
        return {
            "name": part["name"], "init": part["init"], "value": value, "arguments": arguments,
            "environment": {**program.environment, NAME_VARIABLE: part["name"]},
        }  # fmt: skip


def _parts(run: KeeperRun) -> list[Record]:
    parts: list[Record] = run.command["parts"]
    return parts


def own_variables(run: KeeperRun) -> dict[str, str]:
    """Return the variables of the checked container, while the run has not been started yet."""
    name = run.command["checked"]
    found: dict[str, str] = next(
        (part["environment"] for part in _parts(run) if part["name"] == name), {}
    )
    return {**found, NAME_VARIABLE: name} if name else {}


def container_pid(run: KeeperRun, folder: str) -> int:
    """Return a process of a run's checked container, for another keeper's run; 0 if none.

    The watcher does not count: its variables are the keeper's.
    """
    name = run.command.get("checked", "")
    for pid, found in processes.all_processes():
        if found.session != run.pid or pid == run.pid or found.state in "ZX":
            continue
        if processes.marked_run(pid, folder) == run.run_id and _is_of(pid, name):
            return pid
    return 0


def _is_of(pid: int, name: str) -> bool:
    try:
        return not name or processes.environment(pid).get(NAME_VARIABLE) == name
    except OSError:
        return False  # it has just ended


def ended_at(told: Record | None) -> float:
    """Return when the last container ended, if all have; 0 if that is not known."""
    over = told is not None and told.get("over")
    return max(float(row[1]) for row in told["containers"]) if told and over else 0.0


def containers_event(run: KeeperRun, told: Record) -> Record:
    """Return the event of the states of a run's containers."""
    return {"a": CONTAINERS, "run": run.run_id, "containers": container_ends(run, told)}


def container_ends(run: KeeperRun, told: Record) -> list[Record]:
    """Return each container of a run; those killed with the watcher have no status."""
    nothing = [[0.0, 0.0, None, ""]] * len(run.pod)
    rows = told.get("containers", nothing)
    return [
        {
            "name": name, "init": init, "started_at": started_at, "ended_at": ended_at,
            "exit_code": status if status is not None and status >= 0 else None,
            "signal": -status if status is not None and status < 0 else None,
        }
        for (name, init), (started_at, ended_at, status, _) in zip(run.pod, rows, strict=True)
    ]  # fmt: skip
