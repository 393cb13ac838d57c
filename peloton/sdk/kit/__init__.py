"""Actor kinds of your own: declare one, register it by entry point, and the cluster runs it.

    LOCK = ActorKind("lock", state=Lock)

A kind is pure functions over values: `decides` for a message, `folds` for a fact, `pursues` for the
goal table. Here are the declaration, its checks and its limits; nothing here knows a cluster.
"""

from peloton.runtime.vocabulary import At, Decision, Key, Refused, Send, key
from peloton.sdk.kit.building import BadKind, build
from peloton.sdk.kit.calls import PASSING, CallAnswered, ClusterCall
from peloton.sdk.kit.declaring import ActorKind
from peloton.sdk.kit.limits import LimitExceeded, TurnLimits
from peloton.sdk.kit.values import (
    ActorFact,
    ActorMessage,
    ActorQuery,
    ActorReply,
    ActorState,
    GetState,
    refusal,
)

__all__ = [
    "ActorFact", "ActorKind", "ActorMessage", "ActorQuery", "ActorReply", "ActorState", "At",
    "BadKind", "CallAnswered", "ClusterCall", "Decision", "GetState", "Key", "LimitExceeded",
    "PASSING", "Refused", "Send", "TurnLimits", "build", "key", "refusal",
]  # fmt: skip
