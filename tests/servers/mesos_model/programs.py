"""What the programs of tasks truly do: how often each began, where, and how it ended.

The truth that all words about tasks are held against.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.backends.mesos.words import Json

STATES = {"FINISHED": "SUCCEEDED", "FAILED": "FAILED", "KILLED": "KILLED", "LOST": "LOST"}
SIGNALS = {"SIGTERM": ("Terminated", 15), "SIGKILL": ("Killed", 9)}


class Program(NamedTuple):
    """What one does: runs so long and exits with this code, or until it is ended (None)."""

    runs_s: float | None = None
    code: int = 0
    deaf: bool = False


@dataclass(frozen=True)
class TrueEnd:
    """How one ended."""

    state: str
    code: int | None = None
    signal: str = ""

    @property
    def text(self) -> str:
        if self.signal:
            return f"Command terminated with signal {SIGNALS[self.signal][0]}"
        return f"Command exited with status {self.code}" if self.code is not None else ""


class Programs:
    """Those of all tasks, by name. Each does what its command says."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.twice: list[str] = []
        self.where: dict[str, set[str]] = {}
        """The agents on which each runs now."""
        self.ends: dict[str, TrueEnd] = {}

    def of(self, info: Json) -> Program:
        """Of this task."""
        return _commanded(info.get("command", {}).get("value", ""))

    def begin(self, task: str, agent: str) -> None:
        self.begun[task] += 1
        if self.begun[task] > 1:
            self.twice.append(task)
        self.where.setdefault(task, set()).add(agent)

    def end(self, task: str, agent: str, end: TrueEnd) -> TrueEnd:
        """It ends so; the first end is the true one."""
        self.gone(task, agent)
        return self.ends.setdefault(task, end)

    def gone(self, task: str, agent: str) -> None:
        """It does not run there any more."""
        self.where.get(task, set()).discard(agent)

    def running(self, agent: str) -> list[str]:
        """What runs there."""
        return sorted(task for task, agents in self.where.items() if agent in agents)


def _commanded(command: str) -> Program:
    """What the command of a test does: `true`, `exit N`, or `sleep S; exit N`. What sleeps for a
    second or more goes on until it is ended, less takes no time."""
    first, _, second = command.partition("; ")
    if first.startswith("sleep "):
        goes_on = float(first.removeprefix("sleep ")) >= 1
        return Program() if goes_on else _commanded(second)
    return Program(0.0, int(first.removeprefix("exit ")) if first.startswith("exit ") else 0)


def told_end(end: TrueEnd) -> dict[str, Any]:
    """As our own executor tells it."""
    told = {
        "signal": SIGNALS[end.signal][1] if end.signal else 0,
        "outcome": STATES[end.state],
        "exit_code": end.code,
        "reason": end.state.lower(),
        "message": end.text,
    }
    return {"data": base64.b64encode(json.dumps(told).encode()).decode(), "message": end.text}
