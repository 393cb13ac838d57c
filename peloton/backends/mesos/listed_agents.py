"""The master's lists of agents and executors, read entry by entry.

An entry that cannot be read is left out and named; its id is returned if at least that can be read,
because a known agent stays as it was then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from peloton.actors.resources import Resources
from peloton.backends.mesos.runs.words import Json, of_others, ranges, reserved_by, sum_of
from peloton.backends.mesos.unreadable import kept_number, kept_text, unread
from peloton.backends.port import POISON
from peloton.placement.messages import Label


@dataclass(frozen=True, slots=True)
class ListedAgent:
    """An agent in the list.

    `here`: it is connected, or deactivated, which gets no tasks, and goes on with those that it
    has. `capacity`: our resources; `ports`: the widest range.
    """

    id: str
    hostname: str
    here: bool
    capacity: Resources
    ports: tuple[int, int]
    ip: str
    labels: tuple[Label, ...]

    @classmethod
    def of(cls, listed: Json, role: str) -> ListedAgent:
        """Read an entry of the master's list. Raises one of `POISON`."""
        info = listed["agent_info"]
        total = listed.get("total_resources") or info.get("resources") or []
        others = of_others(_unreserved(listed.get("allocated_resources") or [], role), role)
        return cls(
            kept_text(info["id"], "value"),
            kept_text(info, "hostname"),
            bool(listed.get("active", True) or listed.get("deactivated")),
            sum_of(_of_ours(total, role)) - sum_of(others),
            max(ranges(total), key=lambda each: each[1] - each[0], default=(0, 0)),
            _ip_of(kept_text(listed, "pid") if "pid" in listed else ""),
            _labels(info.get("attributes") or []),
        )


@dataclass(slots=True)
class ListedAgents:
    """All entries. `unread`: the ids of those that could not be read, as far as those can."""

    agents: list[ListedAgent] = field(default_factory=list)
    executors: dict[str, list[Json]] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, registered: Iterable[Any], executors: Iterable[Any], *, role: str) -> ListedAgents:
        """Read both lists; the executors of an agent are found by its id."""
        found = cls()
        for each in registered:
            try:
                found.agents.append(ListedAgent.of(each, role))
            except POISON as why:
                name = listed_id(each)
                found.unread.add(name)
                found.problems.append(unread(f"agent {name or 'without an id'}", why))
        for each in executors:
            try:
                info = each["executor_info"]
                if not isinstance(info["executor_id"]["value"], str):
                    raise TypeError("its id is no text")
                sum_of(info.get("resources") or [])
                found.executors.setdefault(str(each["agent_id"]["value"]), []).append(info)
            except POISON as why:
                found.problems.append(unread("an executor", why))
        return found

    def executors_at(self, agent_id: str) -> Sequence[Json]:
        """Return the resources of an agent's executors."""
        return self.executors.get(agent_id, ())


def listed_id(listed: Any) -> str:
    """Return the id of an agent in the master's list; empty if it cannot be read."""
    try:
        return str(listed["agent_info"]["id"]["value"])
    except POISON:
        return ""


def _of_ours(entries: Iterable[Json], role: str) -> list[Json]:
    """Return the entries that nobody else has or has reserved."""
    theirs = of_others(entries := [*entries], role)
    return [entry for entry in entries if entry not in theirs]


def _unreserved(entries: Iterable[Json], role: str) -> list[Json]:
    """Return the entries that nobody else has reserved, whoever has got them."""
    return [entry for entry in entries if reserved_by(entry) in ("*", role)]


def _ip_of(pid: str) -> str:
    """Return the address in the name of an agent's process, `slave(1)@127.0.0.1:5051`."""
    return pid.rpartition("@")[2].rpartition(":")[0].strip("[]")


def _labels(attributes: Iterable[Json]) -> tuple[Label, ...]:
    """Return attributes of text and numbers, as they are written in constraints."""
    found = []
    for each in attributes:
        if "text" in each:
            found.append(Label(kept_text(each, "name"), kept_text(each["text"], "value")))
        elif "scalar" in each:
            found.append(
                Label(kept_text(each, "name"), f"{kept_number(each['scalar'], 'value'):g}")
            )
    return tuple(found)
