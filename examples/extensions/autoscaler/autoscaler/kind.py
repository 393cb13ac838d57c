"""An autoscaler: sets how many instances a service has by a metric that is reported to it.

Whoever measures sends `Observe` with the value for the whole service, such as requests per second
or the length of a queue; `target` is how much of it one instance is for. More instances come at
once. Fewer come only after the metric was low for `down_after_s`, and then as many as the highest
value of that time wants; within `tolerance` of the target nothing changes. So a service does not
swing with its load. How many instances there are is read from the cluster whenever the service
changes, so what people set by hand is seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from peloton.sdk.kit import (
    ActorFact,
    ActorKind,
    ActorMessage,
    ActorReply,
    ActorState,
    At,
    CallAnswered,
    ClusterCall,
    Decision,
    refusal,
)

GET = "peloton.api.v1alpha.job.stateless.svc.JobService.GetJob"
PATCH = "peloton.api.v1alpha.job.stateless.svc.JobService.PatchJob"
INSTANCES_MAX = 100_000
INVALID, ABSENT = "INVALID", "ABSENT"


class Policy(Struct, frozen=True):
    """How many instances are wanted. `batch_size` of an update; 0: all at once."""

    service: str  # its id
    target: float
    least: int = 1
    most: int = 10
    tolerance: float = 0.1
    down_after_s: float = 300.0
    batch_size: int = 0


class Autoscaler(ActorState, frozen=True):
    """What is known of the service, and what is wanted. `wanted` 0: no change is under way."""

    policy: Policy = Policy("", 1.0)
    version: str = ""
    instances: int = 0
    seen: str = ""
    value: float = 0.0
    low_since: float = 0.0  # 0: the metric is not low
    low_most: int = 0  # the highest number that it wanted since
    wanted: int = 0
    since: float = 0.0  # when this life of the autoscaler began
    changes: int = 0
    because: str = ""


class Configure(ActorMessage, frozen=True):
    """Scale by this policy from now on."""

    policy: Policy


class Observe(ActorMessage, frozen=True):
    """The metric now, of the whole service."""

    value: float


class Release(ActorMessage, frozen=True):
    """Leave the service as it is, and end."""


class Noted(ActorReply, frozen=True):
    """It is journaled. `wanted`: how many instances are being set; 0: no change."""

    wanted: int


class Configured(ActorFact, frozen=True):
    """The policy is another, from this time on."""

    policy: Policy
    at: float


class Observed(ActorFact, frozen=True):
    """The metric; `low_since` and `low_most` as in the state."""

    value: float
    low_since: float = 0.0
    low_most: int = 0


class ServiceRead(ActorFact, frozen=True):
    """How many instances the service has, in which version."""

    version: str
    instances: int
    seen: str


class ChangeWanted(ActorFact, frozen=True):
    """The number of instances is to be changed."""

    instances: int
    because: str


class ChangeMade(ActorFact, frozen=True):
    """It is changed, or the cluster refused; then `problem` says why."""

    version: str = ""
    problem: str = ""


class Released(ActorFact, frozen=True):
    """The autoscaler has ended."""

    because: str


AUTOSCALER = ActorKind("autoscaler", state=Autoscaler)


# ---- orders and observations ----


@AUTOSCALER.decides(Configure, reply=Noted)
def configure(scaler: Autoscaler, message: Configure, at: At) -> Decision:
    """Take a policy, for the same service or another one."""
    for field, text in wrong(message.policy):
        return refusal(INVALID, text, field=f"policy.{field}")
    return Decision((Configured(message.policy, at.now),), reply=Noted(0), because="configured")


def wrong(policy: Policy) -> Iterator[tuple[str, str]]:
    """Yield the mistakes of a policy: the field, and what is wrong."""
    if not policy.service:
        yield "service", "is empty"
    if not (math.isfinite(policy.target) and policy.target > 0):
        yield "target", f"{policy.target:g} is not above 0"
    if not 1 <= policy.least <= policy.most <= INSTANCES_MAX:
        text = f"{policy.least} and {policy.most} are not 1 ≤ least ≤ most ≤ {INSTANCES_MAX}"
        yield "least", text
    if not 0 <= policy.tolerance < 1:
        yield "tolerance", f"{policy.tolerance:g} is not between 0 and 1"
    if not (math.isfinite(policy.down_after_s) and policy.down_after_s >= 0):
        yield "down_after_s", f"{policy.down_after_s:g} is negative"
    if policy.batch_size < 0:
        yield "batch_size", "is negative"


@AUTOSCALER.decides(Observe, reply=Noted)
def observe(scaler: Autoscaler, message: Observe, at: At) -> Decision:
    """Note the metric; more instances are wanted at once."""
    if not scaler.policy.service:
        return refusal(ABSENT, "it was never configured")
    if not (math.isfinite(message.value) and message.value >= 0):
        return refusal(INVALID, f"{message.value} is no number of 0 or more", field="value")
    wants, have = wanted_by(scaler.policy, message.value), scaler.instances
    since, most = 0.0, 0
    if have and wants < have and message.value < have * low(scaler.policy):
        since, most = scaler.low_since or at.now, max(wants, scaler.low_most)
    facts: list[ActorFact] = [Observed(message.value, since, most)]
    grows = have and wants > have and message.value > have * high(scaler.policy)
    if grows and not scaler.wanted:
        facts.append(ChangeWanted(wants, f"the metric is {message.value:g}"))
    reply = Noted(wants if grows else 0)
    return Decision(tuple(facts), reply=reply, because=f"{wants} wanted")


def wanted_by(policy: Policy, value: float) -> int:
    """Return how many instances a value wants, within the limits of the policy."""
    return min(max(math.ceil(value / policy.target), policy.least), policy.most)


def high(policy: Policy) -> float:
    """Return above how much per instance there are too few of them."""
    return policy.target * (1 + policy.tolerance)


def low(policy: Policy) -> float:
    """Return below how much per instance there are too many of them."""
    return policy.target * (1 - policy.tolerance)


@AUTOSCALER.decides(Release, reply=Noted)
def release(scaler: Autoscaler, message: Release, at: At) -> Decision:
    """End; the service stays as it is."""
    if not scaler.policy.service:
        return refusal(ABSENT, "it was never configured")
    return Decision((Released(f"released by {at.who}"),), reply=Noted(0), because="released")


@AUTOSCALER.deadline
def deadline(scaler: Autoscaler) -> tuple[str, float] | None:
    """When the metric has been low for long enough."""
    if scaler.low_since and not scaler.wanted:
        return f"low:{scaler.low_since}.{scaler.changes}", scaler.policy.down_after_s
    return None


@AUTOSCALER.due("low")
def shrink(scaler: Autoscaler, at: At) -> Decision:
    """Want fewer instances, as the metric stayed low."""
    because = f"the metric was low for {scaler.policy.down_after_s:g} s"
    return Decision((ChangeWanted(scaler.low_most, because),), because=because)


# ---- the cluster ----


@AUTOSCALER.calls
def calls(scaler: Autoscaler) -> tuple[ClusterCall, ...]:
    """Read the service after each of its changes, and set its number of instances."""
    policy = scaler.policy
    if not policy.service:
        return ()
    job = {"value": policy.service}
    request = {"jobId": job, "summaryOnly": True}
    read = ClusterCall("read", GET, request, follow=f"job/{policy.service}", seen=scaler.seen)
    if not scaler.wanted:
        return (read,)
    change: dict[str, Any] = {
        "jobId": job,
        "version": {"value": scaler.version},
        "spec": {"instanceCount": scaler.wanted},
        "updateSpec": {"batchSize": policy.batch_size},
    }
    # One of this name that was released and configured again must not repeat an earlier id.
    return read, ClusterCall(f"change:{scaler.since}:{scaler.changes}", PATCH, change)


@AUTOSCALER.answered
def answered(scaler: Autoscaler, answer: CallAnswered, at: At) -> Decision:
    """Journal what a call has brought."""
    problem = f"{answer.code}: {answer.text}" if answer.code else ""
    if answer.id != "read":
        version = answer.answer.get("version", {}).get("value", "")
        return Decision((ChangeMade(version, problem),), because=problem or "changed")
    if answer.code == "NOT_FOUND":
        return Decision((Released("its service is gone"),), because="its service is gone")
    if problem:
        return Decision(because=f"the service cannot be read: {problem}")
    summary = answer.answer["summary"]
    fact = ServiceRead(
        summary["status"]["version"]["value"], summary.get("instanceCount", 0), answer.digest
    )
    return Decision((fact,), because="the service has changed")


# ---- facts ----


@AUTOSCALER.folds(Configured)
def configured(scaler: Autoscaler, fact: Configured) -> Autoscaler:
    if scaler.policy.service != fact.policy.service:
        return Autoscaler(policy=fact.policy, since=fact.at)
    return replace(scaler, policy=fact.policy, low_since=0.0, low_most=0)


@AUTOSCALER.folds(Observed)
def observed(scaler: Autoscaler, fact: Observed) -> Autoscaler:
    return replace(scaler, value=fact.value, low_since=fact.low_since, low_most=fact.low_most)


@AUTOSCALER.folds(ServiceRead)
def service_read(scaler: Autoscaler, fact: ServiceRead) -> Autoscaler:
    return replace(scaler, version=fact.version, instances=fact.instances, seen=fact.seen)


@AUTOSCALER.folds(ChangeWanted)
def change_wanted(scaler: Autoscaler, fact: ChangeWanted) -> Autoscaler:
    return replace(scaler, wanted=fact.instances, because=fact.because, low_since=0.0, low_most=0)


@AUTOSCALER.folds(ChangeMade)
def change_made(scaler: Autoscaler, fact: ChangeMade) -> Autoscaler:
    after = replace(scaler, wanted=0, changes=scaler.changes + 1)
    if fact.problem:  # such as a version that is not the newest any more, which is read anyway
        return replace(after, because=fact.problem)
    return replace(after, instances=scaler.wanted, version=fact.version)


@AUTOSCALER.folds(Released)
def released(scaler: Autoscaler, fact: Released) -> Autoscaler:
    return Autoscaler(because=fact.because)


@AUTOSCALER.ends
def ended(scaler: Autoscaler) -> bool:
    """It is deleted once it is for no service."""
    return not scaler.policy.service
