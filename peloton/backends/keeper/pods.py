"""Runs that are pods of several containers: their watchers are started, signalled and asked.

Turns a run into a watcher (`pod_run.py`), and the file that one keeps into what has become of the
containers. It must not wait for a watcher, nor start another one: one that was killed leaves a run
that is over.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from . import pod_run, processes
from .accounts import Account
from .disk import DISK, Disk, make_folder, read_file
from .kinds import KeeperRun, Record
from .processes import SpawnFailed
from .programs import called, program_of
from .switching import in_memory

FOLDER = "pods"
PARTS_MAX = 64
NAME_VARIABLE = "PELOTON_CONTAINER_NAME"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_ARGUMENTS = [sys.executable, "-I", "-S", os.path.abspath(pod_run.__file__)]


def parts_of(sent: Record) -> list[Record]:
    """The containers that a request names, checked: a name is that of files. Raises ValueError,
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


class Pods:
    """Of one keeper. Nothing is made before there is one."""

    def __init__(self, folder: str, *, disk: Disk = DISK) -> None:
        self._folder = folder
        self._disk = disk
        self._made = False
        self._asked: dict[str, None] = {}
        self.unready: dict[str, KeeperRun] = {}
        """Those of which not all containers have started."""

    def recover(self, runs: Iterable[KeeperRun]) -> None:
        """At the start of a keeper: take over what goes on, and forget what is over."""
        for run in runs:
            if run.pod and run.end is None:
                self.unready[run.run_id] = run
            else:
                self.forget(run)

    def start(self, run: KeeperRun, sandbox: str, *, base: Mapping[str, str]) -> int:
        """The pid of its watcher. Raises SpawnFailed."""
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
            pid = self._spawn(told, run)
        except OSError as trouble:
            raise SpawnFailed(f"spawn: {trouble.strerror}", status=None) from trouble
        self.unready[run.run_id] = run
        return pid

    def asks(self, run: KeeperRun, number: int) -> bool:
        """Whether its watcher is asked to pass a signal on: to kill its containers once only, as
        it must not be killed before them, and may not be obeying."""
        if number == signal.SIGKILL:
            if run.run_id in self._asked:
                return False
            self._asked[run.run_id] = None
        taken = signal.SIGUSR1 if number == signal.SIGKILL else signal.SIGTERM
        processes.signal_one(run.pid, taken)
        return True

    def look(self) -> list[KeeperRun]:
        """The pods of which all containers have started since."""
        found: list[KeeperRun] = []
        for run in [*self.unready.values()]:
            run.ready_at = self.told(run).get("ready_at", 0.0)
            if run.ready_at or run.end is not None:
                del self.unready[run.run_id]
            if run.ready_at and run.end is None:
                found.append(run)
        return found

    def told(self, run: KeeperRun) -> Record:
        """What its watcher has told last; nothing before that."""
        try:
            found = json.loads(read_file(self._file(run), self._disk))
            return found if isinstance(found, dict) else {}
        except (OSError, ValueError):
            return {}

    def ended(self, run: KeeperRun) -> Record:
        """What its watcher told last, which has ended."""
        self.unready.pop(run.run_id, None)
        self._asked.pop(run.run_id, None)
        told = self.told(run)
        run.ready_at = told.get("ready_at", 0.0)
        return told

    def forget(self, run: KeeperRun) -> None:
        """Its end is in the journal."""
        if run.pod:
            try:
                self._disk.unlink(self._file(run))
            except OSError:
                return  # it had none, or the next keeper removes it

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

    def _spawn(self, told: Record, run: KeeperRun) -> int:
        """Its signals are blocked from the beginning: it takes them when it can."""
        described = in_memory(json.dumps(told).encode())
        actions: list[Any] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, described, pod_run.DESCRIPTION_FD),
        ]
        environment = dict(os.environ)
        environment[processes.RUN_MARK] = run.run_id
        environment[processes.KEEPER_MARK] = self._folder
        try:
            return os.posix_spawn(
                _ARGUMENTS[0], _ARGUMENTS, environment, file_actions=actions, setsid=True,
                setsigmask=pod_run.TAKEN, setsigdef=processes.RESET_SIGNALS,
            )  # fmt: skip
        finally:
            os.close(described)


def _parts(run: KeeperRun) -> list[Record]:
    parts: list[Record] = run.command["parts"]
    return parts


def ended_at(told: Record | None) -> float:
    """When the last container ended, if all have; 0 if that is not known."""
    over = told is not None and told.get("over")
    return max(float(row[1]) for row in told["containers"]) if told and over else 0.0


def container_ends(run: KeeperRun, told: Record) -> list[Record]:
    """Each container of a run that is over, for its end: those that were killed with the watcher
    have no status."""
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
