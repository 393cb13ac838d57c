"""Storms over autoscalers: `peloton chaos run --kinds autoscaler.storms`.

The cluster is a model of one service: a version that rises with each change, and a number of
instances. A change of an older version is refused, as the cluster does.
"""

from __future__ import annotations

import json
import random

from autoscaler.kind import AUTOSCALER, PATCH, ChangeWanted, Configure, Observe, Policy, Release
from peloton.chaos.kinds import KindHistory, KindStorms, StormCommand
from peloton.sdk.kit import ActorMessage, CallAnswered, Key, key
from peloton.sdk.kit.calls import MakeCall

NAMES, SERVICES = ("a", "b"), ("one", "two")
BEGUN = 3
FAILING = 0.1


def command(chance: random.Random) -> StormCommand:
    """Draw what a client does next: mostly to report the metric."""
    policy = Policy(
        chance.choice(SERVICES), 10.0, 1, 8, chance.choice((0.0, 0.1)), chance.choice((1.0, 30.0))
    )
    messages: tuple[ActorMessage, ...] = (
        Configure(policy),
        *[Observe(chance.uniform(0.0, 120.0)) for _ in range(5)],
        Release(),
    )
    return StormCommand(key("autoscaler", chance.choice(NAMES)), chance.choice(messages))


def answer(
    actor: Key, call: MakeCall, history: KindHistory, chance: random.Random
) -> CallAnswered | None:
    """Answer as a cluster with these services."""
    request = json.loads(call.request)
    service = request["jobId"]["value"]
    instances, version = service_now(history, service)
    if call.method == PATCH:
        if request["version"]["value"] != str(version):
            return CallAnswered(call.id, "ABORTED", f"the version is {version}")
        if chance.random() < FAILING:
            return CallAnswered(call.id, "INVALID_ARGUMENT", "refused")
        wanted = request["spec"]["instanceCount"]
        made = {"version": {"value": str(version + 1)}, "service": service, "instances": wanted}
        return CallAnswered(call.id, answer=made)
    digest = f"{version}"
    if digest == call.seen:
        return None
    status = {"version": {"value": str(version)}}
    summary = {"instanceCount": instances, "status": status}
    return CallAnswered(call.id, answer={"summary": summary}, digest=digest)


def service_now(history: KindHistory, service: str) -> tuple[int, int]:
    """Return instances and version of a service, by the changes that were made."""
    changes = [
        each.answer
        for each in history.calls.values()
        if not each.code and each.answer.get("service") == service
    ]
    newest = max(changes, key=lambda made: int(made["version"]["value"]), default=None)
    return (newest["instances"], int(newest["version"]["value"])) if newest else (BEGUN, 1)


def within_the_policy(history: KindHistory) -> None:
    """No number is wanted that the policy does not allow."""
    for last in history.news:
        scaler = history.states.get(last.key)  # None: it was released in the same frame
        if scaler is not None and isinstance(last.fact, ChangeWanted):
            assert scaler.policy.least <= last.fact.instances <= scaler.policy.most, (
                f"beyond the policy: {last.key} wants {last.fact.instances}"
            )


def services_are_known(history: KindHistory) -> None:
    """Once it is calm each knows its service as it is, and no change is left undone."""
    for name, scaler in history.of_kind("autoscaler").items():
        instances, version = service_now(history, scaler.policy.service)
        assert not scaler.wanted, f"undone: {name} wants {scaler.wanted}"
        found = scaler.instances, scaler.version
        assert found == (instances, str(version)), f"not known: {name} has {found}"


STORMS = KindStorms(
    [AUTOSCALER],
    command=command,
    always=[within_the_policy],
    at_end=[services_are_known],
    answer=answer,
)
