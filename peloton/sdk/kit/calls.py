"""What an extension's actor asks of the cluster as a client does, and the answers.

A state owes calls (`ActorKind.calls`), each under an id of its own. A call is made when a state
first owes it, and again until a state owes it no more; under its id it takes effect once. It is
made by the daemon, as the principal `extension:KIND`, to which the file of permissions gives rights
as to any other name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from peloton.runtime import vocabulary
from peloton.runtime.vocabulary import Delivery, Send, key
from peloton.sdk.kit.values import ActorMessage

CLIENT = key("client", "any")
"""The ephemeral service that makes calls; every daemon with the role api has one."""


class ClusterCall(msgspec.Struct, frozen=True):
    """One call: the full name of a method, such as `peloton.api.v0.job.JobManager.Create`, and its
    request as protobuf's JSON form has it. Under one id there is one call in all lives of an actor.

    `follow` names an actor, such as `job/ID`: then the call is made again whenever that one has
    changed, until the answer has another digest than `seen`. `until` names a field of the answer:
    then the call, which has to wait itself as `Ops.WaitJob` does, is made again until that is true.
    """

    id: str
    method: str
    request: Mapping[str, Any]
    follow: str = ""
    seen: str = ""
    until: str = ""


class MakeCall(vocabulary.Message, frozen=True, gc=False, array_like=True):
    """An actor to the client of a daemon: make this call; `request` is JSON."""

    delivery: ClassVar[Delivery] = Delivery.OWED

    id: str
    method: str
    request: bytes
    follow: str = ""
    seen: str = ""
    until: str = ""


class CallAnswered(ActorMessage, frozen=True):
    """The answer to the call of this id.

    `code` is empty where it succeeded; else it is the name of the gRPC status, or of the field of
    the error inside of a v0 answer, and `text` says why. `answer` is in protobuf's JSON form;
    `digest` tells one answer from another.
    """

    id: str
    code: str = ""
    text: str = ""
    answer: dict[str, Any] = {}
    digest: str = ""


PASSING = ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "CANCELLED", "DEADLINE_EXCEEDED")
"""Codes of what may be otherwise at the next try; a call that stays owed is made again."""
CLIENT_MESSAGES: dict[int, type] = {1: MakeCall}


def order(call: ClusterCall) -> Send:
    """Return the message that has a call made."""
    request = msgspec.json.encode(call.request, order="deterministic")
    made = MakeCall(call.id, call.method, request, call.follow, call.seen, call.until)
    return Send(CLIENT, made)
