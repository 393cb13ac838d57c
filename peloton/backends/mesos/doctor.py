"""The requirements of its hosts on a Mesos cluster, and those that a given cluster violates.

`read_cluster` asks the master as an operator does, and looks whether the agents can be reached from
here; `findings_of` turns that into findings, each with its remedy. It must not subscribe, because a
daemon may be running.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import re
import ssl
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, NamedTuple

from peloton.backends.mesos.masters.leading_master import LeadingMaster
from peloton.backends.mesos.masters.operator_api import (
    Credential,
    HttpDoor,
    NoAnswer,
    NotThere,
    OperatorApi,
)
from peloton.backends.mesos.runs.words import Json
from peloton.runtime.adapters.system_clock import SystemClock

VERSION_MIN = (1, 4, 0)
"""From which on agents have the capabilities that we rely on."""
AGENT_CAPABILITIES = ("MULTI_ROLE", "RESERVATION_REFINEMENT")
CLOCK_MAX_S = 5.0
"""Times of Mesos and ours stand beside each other; the answer's date is in whole seconds."""
AGENTS_AT_ONCE = 16
NAMED_MAX = 3
_OURS = re.compile(r"peloton-[0-9a-f]{32}-(.+)")


class Unanswered(Exception):
    """The master was not reached, or does not answer."""


class MesosWanted(NamedTuple):
    """The cluster in the settings; `framework`: empty if it follows from the journal."""

    master: str
    name: str = "mesos"
    role: str = "peloton"
    framework: str = ""
    revocable: bool = False
    principal: str = ""

    def is_ours(self, framework_id: str) -> bool:
        """Return whether this is our framework's id, or that of a cluster with this name."""
        if self.framework:
            return framework_id == self.framework
        found = _OURS.fullmatch(framework_id)
        return found is not None and found[1] == self.name


class MesosReading(NamedTuple):
    """The state of a cluster that is judged, as the master reports it."""

    master: str
    version: str
    frameworks: Sequence[Json]
    removed: Sequence[Json]
    agents: Sequence[Json]
    roles: Sequence[Json]
    quotas: Sequence[Json]
    flags: Mapping[str, str]
    clock_s: float | None
    """By how much the master's clock is ahead of ours."""
    unreachable: Sequence[str] = ()
    """Agents that do not answer from here."""


class MesosFinding(NamedTuple):
    """A deviation, with its remedy. `wrong`: hosts of this cluster do not work."""

    wrong: bool
    text: str
    remedy: str


# ---- judging ---------------------------------------------------------------------------------


def findings_of(reading: MesosReading, wanted: MesosWanted) -> list[MesosFinding]:
    """Return all findings, those of the master first."""
    return [
        *_version(reading),
        *_clock(reading),
        *_framework(reading, wanted),
        *_role(reading, wanted),
        *_agents(reading, wanted),
    ]


def _version(reading: MesosReading) -> Iterator[MesosFinding]:
    if _numbers(reading.version) < VERSION_MIN:
        least = ".".join(map(str, VERSION_MIN))
        text = f"the master runs version {reading.version}: we rely on what {least} has brought"
        yield MesosFinding(True, text, "upgrade Mesos")
    others = {one.get("version", "") for one in reading.agents} - {reading.version, ""}
    if others:
        text = f"the master runs {reading.version}, agents {', '.join(sorted(others))}"
        yield MesosFinding(False, text, "finish the upgrade of Mesos")


def _clock(reading: MesosReading) -> Iterator[MesosFinding]:
    ahead_s = reading.clock_s
    if ahead_s is not None and abs(ahead_s) > CLOCK_MAX_S:
        way = "ahead of" if ahead_s > 0 else "behind"
        text = f"the master's clock is {abs(ahead_s):.0f} s {way} ours: times of runs are as wrong"
        yield MesosFinding(False, text, "set the clocks, best by NTP on all machines")


def _framework(reading: MesosReading, wanted: MesosWanted) -> Iterator[MesosFinding]:
    ours = [one for one in reading.frameworks if wanted.is_ours(_id(one))]
    removed = [one for one in reading.removed if wanted.is_ours(_id(one))]
    if removed and not ours:
        text = f"framework {_id(removed[-1])} has been removed: its tasks are gone, its id refused"
        yield MesosFinding(
            True, text, "set another `framework` in backend.mesos, and start the daemon"
        )
    elif not ours:
        text = "no framework of ours is registered"
        yield MesosFinding(
            False, text, "none is before the first start; else see /health of the daemon"
        )
    for one in ours:
        info = one["framework_info"]
        if not one.get("connected"):
            days = info.get("failover_timeout", 0.0) / 86_400
            text = f"framework {_id(one)} is not subscribed: after {days:g} days it is removed"
            yield MesosFinding(
                False, text, "start a daemon with the role hostmgr, or see its /health"
            )
        roles = info.get("roles") or [info.get("role", "*")]
        if wanted.role not in roles:
            text = f"framework {_id(one)} has the role {', '.join(roles)}, not {wanted.role}"
            yield MesosFinding(False, text, "restart the daemon: it takes the role of its file")
        if wanted.principal and info.get("principal", "") != wanted.principal:
            text = f"framework {_id(one)} has the principal {info.get('principal') or 'none'}"
            yield MesosFinding(
                True, text, "a framework keeps its principal: name it, or set `framework`"
            )


def _role(reading: MesosReading, wanted: MesosWanted) -> Iterator[MesosFinding]:
    listed = reading.flags.get("roles", "")
    if listed and wanted.role not in listed.split(","):
        text = f"the master knows no role {wanted.role}: its --roles are {listed}"
        yield MesosFinding(True, text, f"add {wanted.role} to the master's --roles, or set `role`")
    for quota in reading.quotas:
        if quota.get("role") != wanted.role:
            continue
        limits = {kind: each.get("value", 0.0) for kind, each in quota.get("limits", {}).items()}
        for kind, limit in sorted(limits.items()):
            total = sum(_amount(one, kind) for one in reading.agents)
            if limit < total:
                text = (
                    f"role {wanted.role} may have {limit:g} of {total:g} {kind}: what is placed "
                    "beyond that finds no offer, and is placed again"
                )
                yield MesosFinding(False, text, "raise the quota's limit, or limit the pools to it")


def _agents(reading: MesosReading, wanted: MesosWanted) -> Iterator[MesosFinding]:
    if not reading.agents:
        yield MesosFinding(True, "no agent is registered: there are no hosts", "start agents")
        return
    names = Counter(_hostname(one) for one in reading.agents)
    double = sorted(name for name, count in names.items() if count > 1)
    if double:
        text = f"several agents have one host name, and one of them is a host: {_some(double)}"
        yield MesosFinding(False, text, "give each agent its --hostname")
    off = sorted(_hostname(one) for one in reading.agents if one.get("deactivated"))
    if off:
        text = f"agents are deactivated or drain at the master, and get no offers: {_some(off)}"
        yield MesosFinding(False, text, "reactivate them, or `peloton host maintenance start` them")
    for name in AGENT_CAPABILITIES:
        old = sorted(_hostname(one) for one in reading.agents if not _can(one, name))
        if old:
            text = f"agents have no {name}, so what they have reserved is not known: {_some(old)}"
            yield MesosFinding(True, text, "upgrade these agents")
    if reading.unreachable:
        text = f"agents do not answer from here: {_some(sorted(reading.unreachable))}"
        yield MesosFinding(
            False, text, "open their ports to the daemons: files of tasks are read there"
        )
    lent = any(
        "revocable" in each for one in reading.agents for each in one.get("total_resources", ())
    )
    if wanted.revocable and not lent:
        text = "`revocable` is set, and no agent lends anything"
        yield MesosFinding(False, text, "give the agents a --resource_estimator, or leave it out")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _id(framework: Json) -> str:
    return str(framework["framework_info"].get("id", {}).get("value", ""))


def _hostname(agent: Json) -> str:
    return str(agent["agent_info"]["hostname"])


def _can(agent: Json, name: str) -> bool:
    return any(one.get("type") == name for one in agent.get("capabilities", ()))


def _amount(agent: Json, kind: str) -> float:
    return float(
        sum(
            each["scalar"]["value"]
            for each in agent.get("total_resources", ())
            if each.get("name") == kind and "scalar" in each and "revocable" not in each
        )
    )


def role_text(reading: MesosReading, wanted: MesosWanted) -> str:
    """Return a line on the role: its weight, and what is promised to it."""
    weights = [one.get("weight", 1.0) for one in reading.roles if one.get("name") == wanted.role]
    quotas = [one for one in reading.quotas if one.get("role") == wanted.role]
    promised = "no quota"
    if quotas:
        words = [
            f"{kind} {way} {each['value']:g}"
            for way, name in (("at least", "guarantees"), ("at most", "limits"))
            for kind, each in sorted(quotas[0].get(name, {}).items())
        ]
        promised = ", ".join(words) or "an empty quota"
    return f"{wanted.role}: weight {weights[0] if weights else 1.0:g}, {promised}"


# ---- reading ---------------------------------------------------------------------------------


def read_cluster(master: LeadingMaster) -> MesosReading:
    """Ask the master that leads. Raises Unanswered."""
    try:
        asked = master.connect({"type": "GET_AGENTS"})
    except NoAnswer as error:
        raise Unanswered(f"no master answers: {error}") from error
    with contextlib.closing(asked.api) as api:
        try:
            return _read(api, asked.answer, tls=master.tls)
        except (KeyError, TypeError, AttributeError):
            raise Unanswered(f"{api.door} answers in words that we do not know") from None


def _read(api: OperatorApi, listed: Json, *, tls: ssl.SSLContext | None) -> MesosReading:
    clock_s = _ahead_s(api.date)
    agents = listed["get_agents"].get("agents", [])
    told = _told(api, "GET_FRAMEWORKS")
    return MesosReading(
        str(api.door),
        _told(api, "GET_VERSION")["version_info"]["version"],
        told.get("frameworks", []),
        told.get("completed_frameworks", []),
        agents,
        _told(api, "GET_ROLES").get("roles", []),
        _told(api, "GET_QUOTA").get("status", {}).get("configs", []),
        {one["name"]: one.get("value", "") for one in _told(api, "GET_FLAGS").get("flags", ())},
        clock_s,
        _unreachable(agents, tls=tls),
    )


def _told(api: OperatorApi, kind: str) -> Any:
    """Return the answer to a question without a body."""
    try:
        return api.ask({"type": kind}).get(kind.lower(), {})
    except NotThere:
        raise Unanswered(f"{api.door} does not know {kind}") from None
    except NoAnswer as error:
        raise Unanswered(f"no answer to {kind}: {error}") from error


def _ahead_s(date: str) -> float | None:
    """Return by how much the clock of this date is ahead of ours."""
    try:
        return parsedate_to_datetime(date).timestamp() - SystemClock().now()
    except ValueError:
        return None


def _unreachable(agents: Sequence[Json], *, tls: ssl.SSLContext | None) -> list[str]:
    with concurrent.futures.ThreadPoolExecutor(AGENTS_AT_ONCE) as pool:
        return [name for name in pool.map(partial(_amiss, tls=tls), agents) if name]


def _amiss(agent: Json, *, tls: ssl.SSLContext | None) -> str:
    """Return the name of an agent that does not answer; with TLS, and why."""
    try:
        door = HttpDoor.of_agent(agent)
    except (KeyError, ValueError):
        return _hostname(agent)
    with contextlib.closing(OperatorApi(door, Credential(), tls=tls)) as api:
        trouble = api.trouble()
    if trouble and tls is not None:
        return f"{_hostname(agent)} ({trouble})"
    return _hostname(agent) if trouble else ""
