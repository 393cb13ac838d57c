"""R1, R2, R6, R21: the answers of pools to clients are linearizable.

Turns the requests of clients to pools into a list of what is wrong with them. The requests to one
pool are linearizable if they can be put in one order in which each takes effect between its sending
and its answer, and in which every answer, also a refusal, is right. The orders are searched; there
are few requests. Only what a client could have seen may be used: a mistake inside would excuse
itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from peloton.actors.respool.messages import (
    CreatePool,
    DeletePool,
    GetPool,
    PoolConfig,
    PoolDone,
    PoolView,
    UpdatePool,
)
from peloton.chaos.cluster.world.clients import PendingRequest
from peloton.runtime.vocabulary import Key, Refused

POOL_PREFIX = "watched"
"""Names of pools whose histories are searched: others exist before the first request."""
NEVER_S = float("inf")
Config = PoolConfig | None


class PoolRequest(NamedTuple):
    """A request to one pool: its times, its message and its answer."""

    begun_s: float
    ended_s: float  # infinite: unknown, or a copy that may still arrive
    message: Any
    answer: Any

    @property
    def optional(self) -> bool:
        """Whether the request may have no effect at all."""
        return self.ended_s == NEVER_S


def pool_faults(requests: list[PendingRequest]) -> list[str]:
    """Return every pool whose history no order explains, as a line each."""
    found = []
    for pool, some in _by_pool(requests).items():
        if not is_linearizable(some):
            shown = [(round(r.begun_s, 3), round(r.ended_s, 3), r.message, r.answer) for r in some]
            found.append(f"R6 {pool}: no order explains these answers: {shown}")
    return found


def is_linearizable(requests: list[PoolRequest]) -> bool:
    """Return whether some order of these requests to one pool explains all answers."""
    todo = frozenset(range(len(requests)))
    needed = frozenset(at for at in todo if not requests[at].optional)
    seen: set[tuple[frozenset[int], Config]] = set()
    stack: list[tuple[frozenset[int], Config]] = [(todo, None)]
    while stack:
        left, config = stack.pop()
        if not left & needed:
            return True
        if (left, config) in seen:
            continue
        seen.add((left, config))
        # What was answered before another began stands before it.
        first_s = min(requests[at].ended_s for at in sorted(left))
        for at in sorted(left):
            request = requests[at]
            if request.begun_s <= first_s:
                stack += [(left - {at}, after) for after in _effects(request, config)]
    return False


def _effects(request: PoolRequest, config: Config) -> Iterator[Config]:
    """Yield the config after the request took effect here; nothing if its answer would be wrong."""
    message, answer = request.message, request.answer
    if isinstance(message, GetPool):
        if config == _shown(answer):
            yield config
        return
    if isinstance(message, CreatePool):
        does, after = config is None or config == message.config, message.config
    else:
        does, after = config is not None, getattr(message, "config", None)
    if request.optional:
        if does:
            yield after
    elif does and isinstance(answer, PoolDone):
        yield after
    elif not does and isinstance(answer, Refused):
        yield config


def _shown(answer: tuple[PoolView, ...]) -> Config:
    return answer[0].config if answer else None


def _by_pool(requests: list[PendingRequest]) -> dict[Key, list[PoolRequest]]:
    found: dict[Key, list[PoolRequest]] = {}
    for pending in requests:
        operation, message = pending.operation, pending.message
        pool = message.pool if isinstance(message, GetPool) else operation.job
        is_one = isinstance(message, CreatePool | UpdatePool | DeletePool | GetPool)
        if not is_one or not pool.partition("/")[2].startswith(POOL_PREFIX):
            continue
        some = found.setdefault(pool, [])
        ended_s = operation.ended_s if operation.ended_s is not None else NEVER_S
        some.append(PoolRequest(operation.begun_s, ended_s, message, operation.answer))
        if isinstance(message, CreatePool) and operation.tries > 1:
            # A copy that comes after the deletion of the pool is a creation of another one.
            some.append(PoolRequest(operation.begun_s, NEVER_S, message, None))
    return found
