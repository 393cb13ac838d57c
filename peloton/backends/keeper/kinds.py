"""The keeper's records: a run, its end, and their forms on disk and on the wire.

Turns runs into journal records and events and back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

Record = dict[str, Any]

# A run id names a folder, and must not name another one.
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")

SUCCEEDED, FAILED, KILLED, LOST = "SUCCEEDED", "FAILED", "KILLED", "LOST"

CONTAINERS = "containers"
"""The event of a pod that goes on, for daemons that have said that they know it."""

EXITED = "exited"
SIGNALLED = "ended by a signal"
KILL_REQUESTED = "killed"
OVER_MEMORY = "memory limit exceeded"
OOM = "OOM"
DISK_LIMIT = "DISK_LIMIT"
RUN_LIMIT = "Deadline exceeded"
NO_LIMITS = "limits cannot be held"
NO_IMAGES = "container image refused"
IMAGE_UNAVAILABLE = "container image unavailable"
NO_CONTAINER = "container could not be made"
NO_ENGINE = "container engine does not answer"
POD_UNWATCHED = "the watcher of the pod's containers was killed"
CONTAINER_GONE = "container removed by others, exit status unknown"
UNWATCHED = "container cannot be watched"
NOT_RUNNABLE = "command cannot be run"
NOT_STARTED = "could not be started"
NO_ACCOUNT = "account cannot be used"
USED_BEFORE = "run id used before"
KEEPER_DIED = "keeper died, exit status unknown"
FOLDER_COPIED = "the keeper's folder was copied, the run is with the original"
MACHINE_RESTARTED = "machine restarted, exit status unknown"


class KeeperRun:
    """A run, from its launch to its acknowledgement.

    `end` is set when it is over, `end_safe` once that end is safe on disk: before that it must not
    be reported, as a keeper killed at that moment would lose an end that was reported. `limits` are
    those of the request, except memory; empty if it has none. `over_limit` is the message of a run
    that is killed for exceeding a limit, `note` is added to that of any end. `grouped`: it is in a
    control group. `container`: engine, image and user id of a run that is a container; then `pid`
    is its watcher's (`container_run.py`), and `watchers` have died before that one. `pod`: name and
    kind of each container of a run with several; then `pid` is that of their watcher
    (`pod_run.py`), and `ready_at` when all that run together had started. `checked`: its health may
    be checked by commands. `secrets` are its values until it starts: they are in no record.
    `volume`: name, path and size of its volume. `killed`: SIGKILL was sent to it. `max_running_s`
    and `grace_s`: how long it may run, 0 without such a limit, and then take to end; `due`: when
    that is over, by the kernel's clock since the machine's start, once it runs; `late`: it was.
    `stop`: since it is being stopped, when it is killed, by the monotonic clock, and whether it was
    told. `exit`: the status with which its first process has ended, and when; while `inherited`,
    the supervisor will report that.
    """

    __slots__ = (
        "run_id", "host", "command", "memory_mb", "pid", "birth", "started_at",
        "kill_requested", "over_limit", "over_reason", "adopted", "end", "end_safe", "recorded",
        "limits", "grouped", "note", "peak_mb", "cpu_s", "container", "watchers",
        "pod", "ready_at", "checked", "secrets", "volume", "killed",
        "max_running_s", "grace_s", "due", "late", "stop", "exit", "inherited",
    )  # fmt: skip

    def __init__(self, run_id: str, host: str, *, command: Record, memory_mb: float) -> None:
        self.run_id = run_id
        self.host = host
        self.command = command
        self.memory_mb = memory_mb
        self.pid = 0
        self.birth = 0
        self.started_at = 0.0
        self.kill_requested = False
        self.over_limit = ""
        self.over_reason = OVER_MEMORY
        self.adopted = False
        self.end: Record | None = None
        self.end_safe = False
        self.recorded = False
        self.limits: Record = {}
        self.grouped = False
        self.note = ""
        self.peak_mb = 0.0
        self.cpu_s = 0.0
        self.container: Record = {}
        self.watchers = 0
        self.pod: list[list[Any]] = []
        self.ready_at = 0.0
        self.checked = False
        self.secrets: tuple[Any, ...] = ()
        self.volume: Record = {}
        self.killed = False
        self.max_running_s = 0.0
        self.grace_s = 0.0
        self.due = 0.0
        self.late = False
        self.stop: list[Any] = []
        self.exit: list[Any] = []
        self.inherited = False

    @property
    def live(self) -> bool:
        return self.pid > 0 and self.end is None

    @property
    def begun_at(self) -> float:
        """When the run started, for a daemon; 0 before that."""
        return self.ready_at if self.pod else self.started_at


def end_of(
    outcome: str,
    *,
    reason: str,
    message: str = "",
    status: int | None = None,
    at: float,
) -> Record:
    """Return the record of an end. `status`: an exit code, or a signal's negative."""
    return {
        "outcome": outcome,
        "reason": reason,
        "message": message,
        "exit_code": status if status is not None and status >= 0 else None,
        "signal": -status if status is not None and status < 0 else None,
        "at": at,
    }


def launch_record(run: KeeperRun) -> Record:
    """Return the record of a launch, without the environment: it may have secrets."""
    kept = {name: run.command[name] for name in ("value", "shell", "arguments")}
    if run.checked:  # for the checks that a successor starts
        kept |= {name: run.command[name] for name in ("as", "checked") if name in run.command}
    record = {
        "is": "launch", "run": run.run_id, "host": run.host,
        "command": kept, "memory_mb": run.memory_mb,
    }  # fmt: skip
    more = {
        "limits": run.limits, "container": run.container, "pod": run.pod, "checked": run.checked,
        "volume": run.volume, "max_running_s": run.max_running_s, "grace_s": run.grace_s,
    }  # fmt: skip
    return record | {name: value for name, value in more.items() if value}


def start_record(run: KeeperRun) -> Record:
    """Return the record of a start; written again at changes for a successor."""
    record = {
        "is": "start", "run": run.run_id,
        "pid": run.pid, "birth": run.birth, "at": run.started_at,
    }  # fmt: skip
    if run.due or run.pod:  # of a pod it counts from later on
        record["due"] = [run.due, run.max_running_s]
    if run.stop:
        record["stop"] = [*run.stop, run.late]
    if run.exit:
        record["exit"] = run.exit
    return record


def end_record(run: KeeperRun) -> Record:
    return {"is": "end", "run": run.run_id, "end": run.end}


def ack_record(run_id: str) -> Record:
    return {"is": "ack", "run": run_id}


def epoch_record(host: str, epoch: int) -> Record:
    return {"is": "epoch", "host": host, "epoch": epoch}


def boot_record(boot_id: str, folder: str) -> Record:
    """Return the record of a boot. `folder` is a number that a copy of the folder has not."""
    return {"is": "boot", "id": boot_id, "folder": folder}


class Memory:
    """The durable state of a keeper: the fold of its journal."""

    def __init__(self, boot_id: str) -> None:
        self.boot_id = boot_id
        self.folder = ""
        self.epochs: dict[str, int] = {}
        self.runs: dict[str, KeeperRun] = {}

    def fold(self, records: Iterable[Record]) -> None:
        for record in records:
            self._fold_one(record)

    def _fold_one(self, record: Record) -> None:
        kind = record["is"]
        if kind == "boot":
            self.boot_id, self.folder = record["id"], record["folder"]
        elif kind == "epoch":
            self.epochs[record["host"]] = record["epoch"]
        elif kind == "launch":
            run = KeeperRun(
                record["run"], record["host"],
                command=record["command"], memory_mb=record["memory_mb"],
            )  # fmt: skip
            run.recorded = True
            run.limits = record.get("limits", {})
            run.container = record.get("container", {})
            run.pod = record.get("pod", [])
            run.checked = record.get("checked", False)
            run.volume = record.get("volume", {})
            run.max_running_s = record.get("max_running_s", 0.0)
            run.grace_s = record.get("grace_s", 0.0)
            self.runs[run.run_id] = run
        elif kind == "start":
            run = self.runs[record["run"]]
            run.pid, run.birth, run.started_at = record["pid"], record["birth"], record["at"]
            run.due, run.max_running_s = record.get("due", (0.0, run.max_running_s))
            *run.stop, run.late = record.get("stop", (False,))
            run.kill_requested, run.exit = bool(run.stop), record.get("exit", [])
        elif kind == "end":
            run = self.runs[record["run"]]
            run.end, run.end_safe = record["end"], True
        elif kind == "ack":
            self.runs.pop(record["run"], None)
        else:
            raise ValueError(f"a record of an unknown kind: {kind!r}")

    def records(self) -> Iterator[Record]:
        """Yield the shortest journal with the same fold."""
        yield boot_record(self.boot_id, self.folder)
        for host, epoch in self.epochs.items():
            yield epoch_record(host, epoch)
        for run in self.runs.values():
            if not run.recorded:
                continue
            yield launch_record(run)
            if run.pid:
                yield start_record(run)
            if run.end is not None:
                yield end_record(run)


def started_event(run: KeeperRun) -> Record:
    return {"a": "started", "run": run.run_id, "pid": run.pid, "at": run.begun_at}


def ended_event(run_id: str, end: Record) -> Record:
    return {"a": "ended", "run": run_id, **end}


def refused_event(run_id: str, why: str, *, at: float) -> Record:
    """Return the event of a refused run, which is not recorded: a repeat is refused again."""
    return ended_event(run_id, end_of(FAILED, reason=NOT_RUNNABLE, message=why, at=at))


def used_event(run_id: str, *, at: float) -> Record:
    """Return the event of a used id. It is not recorded: a daemon knows the first run's end."""
    return ended_event(run_id, end_of(LOST, reason=USED_BEFORE, at=at))


def listed(run: KeeperRun) -> Record:
    """Return a run as listed; as running until its end is safe, as a successor may not know it."""
    if run.end_safe:
        state = "ended"
    elif run.pid and (run.ready_at or not run.pod):
        state = "running"
    else:
        state = "queued"
    return {
        "run": run.run_id, "state": state, "pid": run.pid, "at": run.begun_at,
        "end": run.end if run.end_safe else None,
    }  # fmt: skip
