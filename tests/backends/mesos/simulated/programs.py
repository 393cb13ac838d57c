"""What the programs of runs truly do: how often each began, where, and how it ended.

The truth that all words about runs are held against. Must not know how anything is told.
"""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.backends.mesos.words import Json

STATES = {"FINISHED": "SUCCEEDED", "FAILED": "FAILED", "KILLED": "KILLED", "LOST": "LOST"}


class Program(NamedTuple):
    """What one does: runs so long and exits with this code, or until it is ended (None)."""

    runs_s: float | None = None
    code: int = 0
    deaf: bool = False

    @property
    def state(self) -> str:
        return "FAILED" if self.code else "FINISHED"


@dataclass(frozen=True)
class TrueEnd:
    """How one ended."""

    state: str
    code: int | None = None
    signal: str = ""

    @property
    def text(self) -> str:
        if self.state == "KILLED":
            return "Command terminated with signal Terminated"
        return f"Command exited with status {self.code}" if self.code is not None else ""


class Programs:
    """Those of all tasks, by name."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._planned: dict[str, Program] = {}
        self.begun: Counter[str] = Counter()
        self.twice: list[str] = []
        self.where: dict[str, set[str]] = {}
        """The agents on which each runs now."""
        self.ends: dict[str, TrueEnd] = {}

    def plan(self, run: str, program: Program) -> None:
        """The containers of a run do alike, but the first one ends first."""
        self._planned[run] = program

    def of(self, info: Json) -> Program:
        """Of this task."""
        name = info["task_id"]["value"]
        run, _, at = name.partition(".")
        found = self._planned.get(run, Program())
        if at and found.runs_s is not None:
            return Program(found.runs_s + self._chance.random() * 5.0, 0, found.deaf)
        return found

    def begin(self, task: str, agent: str) -> None:
        self.begun[task] += 1
        if self.begun[task] > 1:
            self.twice.append(task)
        self.where.setdefault(task, set()).add(agent)

    def end(self, task: str, agent: str, *, state: str) -> TrueEnd:
        """It ends so; the first end is the true one."""
        self.gone(task, agent)
        code: int | None = None
        if state in ("FINISHED", "FAILED"):
            code = self._planned.get(task.partition(".")[0], Program()).code
            code = code if state == "FAILED" else 0
        end = TrueEnd(state, code, "SIGTERM" if state == "KILLED" else "")
        return self.ends.setdefault(task, end)

    def gone(self, task: str, agent: str) -> None:
        """It does not run there any more."""
        self.where.get(task, set()).discard(agent)

    def running(self, agent: str) -> list[str]:
        """What runs there."""
        return sorted(task for task, agents in self.where.items() if agent in agents)


def told_end(end: TrueEnd) -> dict[str, Any]:
    """As our own executor tells it."""
    told = {
        "signal": 15 if end.signal else 0,
        "outcome": STATES[end.state],
        "exit_code": end.code,
        "reason": end.state.lower(),
        "message": end.text,
    }
    return {"data": base64.b64encode(json.dumps(told).encode()).decode(), "message": end.text}
