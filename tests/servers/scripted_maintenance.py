"""The maintenance of a master of Mesos, as one that does as it is told: its operators' calls.

The rules are those that a real one has shown: the schedule is replaced whole, a machine that is
down stays in it, only what drains goes down, only what is down comes up. `meddle` lets others act
between any two calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peloton.backends.mesos.masters.calls import CallRefused

Json = dict[str, Any]


def machine(hostname: str, ip: str = "10.0.0.1") -> Json:
    """As the master names it."""
    return {"hostname": hostname, "ip": ip}


def window(*machines: Json, start: int = 1) -> Json:
    """A part of the schedule."""
    return {
        "machine_ids": [*machines],
        "unavailability": {"start": {"nanoseconds": start}, "duration": {"nanoseconds": 5}},
    }


class FakeMaintenance:
    """`windows` is the schedule, `down` who is down, `asked` the types of all calls."""

    def __init__(self, *windows: Json, down: tuple[Json, ...] = ()) -> None:
        self.windows = [*windows]
        self.down = [*down]
        self.asked: list[str] = []
        self.forbidden: tuple[str, ...] = ()
        self.refuses: Callable[[Mapping[str, Any]], str] = lambda call: ""
        """Why a call is refused; empty if it is not."""
        self.meddle: Callable[[FakeMaintenance], None] = lambda _: None

    @property
    def scheduled(self) -> list[Json]:
        return [each for one in self.windows for each in one["machine_ids"]]

    @property
    def changes(self) -> list[str]:
        """The calls that were to change something."""
        return [one for one in self.asked if not one.startswith("GET_")]

    def ask(self, call: Mapping[str, Any]) -> Json:
        """One call; raises CallRefused."""
        kind = call["type"]
        self.asked.append(kind)
        self.meddle(self)
        if kind in self.forbidden:
            raise CallRefused(f"the master refuses {kind}: 403")
        why = self.refuses(call)
        if why:
            raise CallRefused(why)
        answer = getattr(self, f"_{kind.lower()}")(call.get(kind.lower(), {}))
        return {} if answer is None else {"type": kind, kind.lower(): answer}

    def _get_maintenance_status(self, _: Json) -> Json:
        drain = [{"id": one} for one in self.scheduled if one not in self.down]
        return {"status": {"draining_machines": drain, "down_machines": [*self.down]}}

    def _get_maintenance_schedule(self, _: Json) -> Json:
        return {"schedule": {"windows": [*self.windows]} if self.windows else {}}

    def _update_maintenance_schedule(self, body: Json) -> None:
        windows = body["schedule"]["windows"]
        ids = [each for one in windows for each in one["machine_ids"]]
        if len(ids) != len({(one["hostname"], one["ip"]) for one in ids}):
            raise CallRefused("a machine appears more than once in the schedule")
        for one in self.down:
            if one not in ids:
                raise CallRefused("is deactivated and cannot be removed from the schedule")
        self.windows = windows

    def _start_maintenance(self, body: Json) -> None:
        for one in body["machines"]:
            if one not in self.scheduled or one in self.down:
                raise CallRefused("is not in DRAINING mode and cannot be brought down")
        self.down += body["machines"]

    def _stop_maintenance(self, body: Json) -> None:
        for one in body["machines"]:
            if one not in self.down:
                raise CallRefused("is not in DOWN mode and cannot be brought up")
        self.down = [one for one in self.down if one not in body["machines"]]
        kept = [
            {**one, "machine_ids": [m for m in one["machine_ids"] if m not in body["machines"]]}
            for one in self.windows
        ]
        self.windows = [one for one in kept if one["machine_ids"]]
