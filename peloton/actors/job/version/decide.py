"""How the owner of an earlier spec stores and deletes it. A repeat is answered again.

The job decides how long the spec is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peloton.actors.job.messages import SpecDropped, SpecStored
from peloton.actors.job.version import facts as f
from peloton.actors.job.version import messages as m
from peloton.actors.job.version.state import Version
from peloton.runtime.vocabulary import SENDER, At, Decision, Send


def store_first(message: m.StoreSpec, at: At) -> Decision:
    """Store the spec."""
    fact = f.SpecKept(message.spec, message.overrides)
    told = Send(SENDER, SpecStored(message.number))
    return Decision(facts=(fact,), sends=(told,), because="an earlier spec of its job")


def store(version: Version, message: m.StoreSpec, at: At) -> Decision:
    """Answer that the spec is stored already: there is one spec of each number."""
    return Decision(sends=(Send(SENDER, SpecStored(message.number)),))


def drop(version: Version, message: m.DropSpec, at: At) -> Decision:
    """Delete the spec: the job has newer ones, or is deleted."""
    told = Send(SENDER, SpecDropped(message.number))
    return Decision(facts=(f.SpecForgotten(),), sends=(told,), because="not kept any more")


def dropped(message: m.DropSpec, at: At) -> Decision:
    """Answer that the spec is not kept."""
    return Decision(sends=(Send(SENDER, SpecDropped(message.number)),))


def get_spec(version: Version, query: m.GetSpec, at: At) -> m.SpecView:
    return m.SpecView(version.spec, version.overrides)


DECIDE: Mapping[type, Callable[[Any, Any, At], Decision]] = {m.StoreSpec: store, m.DropSpec: drop}
ABSENT: Mapping[type, Callable[[Any, At], Decision]] = {
    m.StoreSpec: store_first,
    m.DropSpec: dropped,
}
