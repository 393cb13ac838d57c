"""The client of a daemon: an ephemeral service that makes the calls of extensions' actors.

Turns an order of an actor into a call of this daemon's own server, as `extension:KIND`, and its
answer into a message. Nothing is journaled here: an actor that has no answer orders again, under
the same request key.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, TypeAlias

from peloton.gateway.cluster.feed import ClusterFeed, OutOfReach
from peloton.gateway.server.json_calls import JsonAnswer, JsonCall, json_call
from peloton.gateway.server.long_calls import LOOP
from peloton.gateway.server.serving import Server
from peloton.gateway.translate.actor_keys import BadKey, parse_key
from peloton.pauses import Pauses
from peloton.runtime.core.principal import EXTENSION, Principal
from peloton.runtime.core.reading.followers import name_of
from peloton.runtime.core.reading.inspection import FollowChanges
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.shells.ephemeral import StatelessService
from peloton.runtime.shells.region import Region
from peloton.runtime.vocabulary import Key, kind_of
from peloton.sdk.kit.calls import CLIENT, PASSING, CallAnswered, MakeCall

CALL_S_MAX = 30.0
UNDER_WAY_MAX = 5_000
"""Of one kind. Of more, actors order again later."""
UNTIL_S = 1.0
WANTED_S = 90.0
"""A call that its actor has not ordered for so long is given up: it is not owed any more. Actors
order again about every 30 s."""
RETRY = Pauses(0.2, 10.0)
RETRIES_MAX = 8

_Order: TypeAlias = tuple[Key, MakeCall]


class ActorClient(StatelessService):
    """The ephemeral service behind `client/any`."""

    key = CLIENT

    def __init__(self, server: Server, region: Region, *, kinds: Collection[str]) -> None:
        self._server, self._region, self._kinds = server, region, kinds
        self._feed = ClusterFeed(region)
        # Both of the loop alone; the runtime orders an owed call again while it is under way.
        self._wanted: dict[_Order, asyncio.Timeout] = {}
        self._of_kind: Counter[str] = Counter()
        self._tasks: dict[_Order, asyncio.Task[None]] = {}

    def receive(self, envelopes: list[Envelope], now: float) -> Iterable[Envelope]:  # noqa: ARG002
        """Take orders; the answers come later."""
        for envelope in envelopes:
            if isinstance(envelope.message, MakeCall) and envelope.sender is not None:
                order = (envelope.sender, envelope.message)
                LOOP.get().call_soon_threadsafe(self._begin, order)
        return ()

    def close(self) -> None:
        """Give up what is under way: its actors order it again, here or elsewhere."""
        LOOP.get().call_soon_threadsafe(self._cancel)

    # ---- on the loop ----

    def _begin(self, order: _Order) -> None:
        timeout, kind = self._wanted.get(order), kind_of(order[0])
        if timeout is not None:
            if not timeout.expired():
                timeout.reschedule(LOOP.get().time() + WANTED_S)
        elif order not in self._tasks and self._of_kind[kind] < UNDER_WAY_MAX:
            self._of_kind[kind] += 1
            self._tasks[order] = LOOP.get().create_task(self._make(order))
        elif order not in self._tasks:
            text = f"{UNDER_WAY_MAX} calls of {kind} are under way"
            self._tell(order, CallAnswered(order[1].id, "RESOURCE_EXHAUSTED", text))

    def _cancel(self) -> None:
        for task in [*self._tasks.values()]:
            task.cancel()

    async def _make(self, order: _Order) -> None:
        try:
            async with asyncio.timeout(WANTED_S) as self._wanted[order]:
                self._tell(order, await self._answer(*order))
        except (TimeoutError, OutOfReach):
            pass  # the actor orders again, if it still wants it
        finally:
            self._wanted.pop(order, None)
            del self._tasks[order]
            self._of_kind[kind_of(order[0])] -= 1

    def _tell(self, order: _Order, answer: CallAnswered) -> None:
        self._region.tell((Envelope(order[0], answer, sender=self.key),))

    async def _answer(self, actor: Key, order: MakeCall) -> CallAnswered:
        """Return the answer; of a followed call the first one that is new."""
        try:
            found_key = parse_key(order.follow, extensions=self._kinds) if order.follow else None
            followed = found_key.key if found_key is not None else None
        except BadKey as error:
            return CallAnswered(order.id, "INVALID_ARGUMENT", f"follow: {error}")
        while followed is not None:
            shard = self._region.shard_of(followed)
            mark = await self._feed.mark(shard)
            found = await self._call(actor, order)
            if found.digest != order.seen or found.code:
                return found
            query = FollowChanges(names=(name_of(followed),)).behind(mark)
            await self._feed.page(shard, query, patience_s=None)
        while True:
            begun_s = LOOP.get().time()
            found = await self._call(actor, order)
            if not order.until or found.code or found.answer.get(order.until):
                return found
            # A method that does not wait itself is not called as fast as it answers.
            await asyncio.sleep(max(UNTIL_S - (LOOP.get().time() - begun_s), 0.0))

    async def _call(self, actor: Key, order: MakeCall) -> CallAnswered:
        who = Principal(kind_of(actor), EXTENSION, caller=actor)
        key = f"{actor}#{order.id}"
        call = JsonCall(order.method, order.request, who, key, CALL_S_MAX)
        found = JsonAnswer("")
        for attempt in range(1, RETRIES_MAX + 1):
            found = await json_call(self._server, call)
            if found.code not in PASSING:
                break
            await asyncio.sleep(RETRY.after(attempt) * random.uniform(0.5, 1.5))
        return CallAnswered(order.id, found.code, found.text, found.answer, _digest(found.answer))


def _digest(answer: dict[str, Any]) -> str:
    data = json.dumps(answer, sort_keys=True).encode()
    return hashlib.sha256(data).hexdigest()[:16]
