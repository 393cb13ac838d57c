"""Why an instance is not where it should be, as a stable code and a line for people.

Turns what slices and lots say into reasons, and alike instances into one. It must not judge: it
asks the lot what the slice cannot know, and repeats both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from peloton.actors.job.slice.messages import InstanceView
from peloton.actors.respool.lot.messages import GetLot, LotWaits
from peloton.actors.task.messages import SLICE_SIZE, TaskGoals
from peloton.gateway.desk import Context, Desk
from peloton.runtime.vocabulary import Bits, Key

LOTS_MAX = 200
"""Lots asked for one answer; waiting members of further lots are told without their place."""

_ENDED_BADLY = {"FAILED": "failed", "LOST": "lost", "KILLED": "killed"}
_DONE = ("SUCCEEDED", "RUNNING")


class Why(NamedTuple):
    """One reason. `known_at` is when it was found out, None for now."""

    code: str
    text: str
    position: int | None = None
    known_at: float | None = None
    retry_at: float | None = None
    counts: tuple[tuple[str, int], ...] = ()


def at_goal(view: InstanceView) -> bool:
    """Whether there is nothing to explain."""
    if view.state == "RUNNING":
        return view.goal not in (TaskGoals.KILLED, TaskGoals.DELETED)
    if view.state == "KILLED":
        return view.goal in (TaskGoals.KILLED, TaskGoals.DELETED)
    return view.state == "SUCCEEDED"


def waits(views: Iterable[InstanceView], *, desk: Desk, context: Context) -> dict[Key, LotWaits]:
    """What the lots say in which some of these wait."""
    lots = dict.fromkeys(view.lot for view in views if view.code == "POOL" and view.lot)
    keys = [*lots][:LOTS_MAX]
    answers = desk.each([(key, GetLot()) for key in keys], context)
    pairs = zip(keys, answers, strict=True)
    return {key: answer for key, answer in pairs if isinstance(answer, LotWaits)}


def why(view: InstanceView, lots: Mapping[Key, LotWaits]) -> Why:
    """The reason of one instance that is not at its goal."""
    if view.state in _ENDED_BADLY:
        return Why(_ENDED_BADLY[view.state], outcome_text(view), known_at=view.ended_at)
    if view.code == "POOL":
        return _pool(view, lots.get(view.lot))
    if view.code == "HOST":
        code = "no-host-fits" if view.counts else "placing"
        return Why(code, view.because, known_at=view.counted_at, counts=view.counts)
    if view.code == "RETRY":
        return Why("retry-backoff", view.because, retry_at=view.retry_at)
    if view.state == "KILLING":
        return Why("stopping", view.because)
    if view.code == "LAUNCH":
        where = f" on {view.host.partition('/')[2]}" if view.host else ""
        return Why("launching", view.because + where)
    return Why("not-asked", view.because or f"is {view.state}")


def outcome_text(view: InstanceView) -> str:
    """How the last run ended, in a line."""
    outcome = view.outcome
    if outcome is None:
        return f"{view.state.lower()} before it was launched"
    parts = [outcome.message or outcome.reason or view.state.lower()]
    if outcome.exit_code and str(outcome.exit_code) not in parts[0]:
        parts.append(f"exit code {outcome.exit_code}")
    if outcome.signal and outcome.signal not in parts[0]:
        parts.append(f"signal {outcome.signal}")
    if view.failures:
        parts.append(f"after {view.failures} failed runs" if view.failures > 1 else "on its run")
    return ", ".join(parts)


def _pool(view: InstanceView, lot: LotWaits | None) -> Why:
    if lot is None:
        return Why("pool-queue", view.because)
    member = view.instance % SLICE_SIZE
    before = len(lot.waiting & Bits.span(0, member))
    text = lot.because or f"waits for its turn in pool {lot.path}"
    code = "pool-limit" if "limit" in text else "pool-queue"
    if text == "pool deleted":
        code = "pool-deleted"
    return Why(code, text, position=lot.position + before + 1)


class Group(NamedTuple):
    """Instances with the same reason: the first of them, and how many."""

    first: InstanceView
    size: int
    why: Why


def grouped(found: Iterable[tuple[InstanceView, Why]]) -> list[Group]:
    """Alike reasons once, in the order of their lowest instance."""
    groups: dict[tuple[str, str, str], Group] = {}
    for view, reason in found:
        alike = view.state, reason.code, reason.text
        known = groups.get(alike)
        groups[alike] = known._replace(size=known.size + 1) if known else Group(view, 1, reason)
    return [*groups.values()]
