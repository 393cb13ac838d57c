"""The clients of a storm over kinds, and the cluster that actors call.

A client sends its message to any daemon, under one request key until it is answered. The simulated
cluster answers calls late, twice or not at all while the storm rages; what it has answered under a
call's id it answers again, as a server does that knows the request key.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from peloton.chaos.kinds.declaring import KindStorms, StormCommand
from peloton.chaos.kinds.history import KindHistory, ToldMessage
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.shells.ephemeral import StatelessService
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.simulation.world import World
from peloton.runtime.vocabulary import Key, Unavailable
from peloton.sdk.kit.calls import CLIENT, CallAnswered, MakeCall

TRY_S, PAUSE_S = 5.0, 0.5
ANSWER_S_MAX = 2.0
FOLLOW_S = 60.0
"""So long a call without an answer is looked at again, as the client of a daemon does."""
LOST, TWICE = 0.1, 0.1
"""Shares of answers to calls, while the storm rages."""


class KindClients:
    """All clients of one storm."""

    def __init__(self, world: World, history: KindHistory, *, chance: random.Random) -> None:
        self._world, self._history, self._chance = world, history, chance
        self.waiting = 0

    def tell(self, client: str, command: StormCommand) -> None:
        """Send a message until it is answered."""
        world = self._world
        told = ToldMessage(client, command.key, message=command.message, begun_s=world.elapsed_s)
        self._history.told.append(told)
        digest = zlib.crc32(repr(command.message).encode()).to_bytes(4, "big")
        self.waiting += 1
        self._try(told, (f"{client}-{len(self._history.told)}", digest))

    def _try(self, told: ToldMessage, request: tuple[str, bytes]) -> None:
        if told.ended_s is not None:
            return
        world = self._world
        told.tries += 1
        number = told.tries

        def again() -> None:
            if told.tries == number:
                self._try(told, request)

        def answered(future: Future[Any]) -> None:
            answer = future.result()
            if told.ended_s is not None:
                return
            if isinstance(answer, Unavailable):
                world.later.at(world.now + PAUSE_S, again)
            else:
                told.reply, told.ended_s = answer, world.elapsed_s
                self.waiting -= 1

        living = [each for each in world.living() if each.alive]
        if living:
            region = self._chance.choice(living).region
            region.ask(told.key, told.message, request=request).add_done_callback(answered)
        world.later.at(world.now + TRY_S + self._chance.random(), again)


class CalledCluster(StatelessService):
    """The ephemeral service behind `client/any` of one daemon."""

    key = CLIENT

    def __init__(
        self, daemon: SimulatedDaemon, calls: SimulatedCalls, *, tell: Callable[..., object]
    ) -> None:
        self._daemon, self._calls, self._tell = daemon, calls, tell

    def receive(self, envelopes: list[Envelope], now: float) -> Iterable[Envelope]:  # noqa: ARG002
        """Take calls; the answers come later."""
        for envelope in envelopes:
            if isinstance(envelope.message, MakeCall) and envelope.sender is not None:
                self._calls.make(envelope.sender, envelope.message, answer=self._send)
        return ()

    def _send(self, actor: Key, answer: CallAnswered) -> None:
        if self._daemon.alive:
            self._tell((Envelope(actor, answer, sender=self.key),))


class SimulatedCalls:
    """What the cluster answers, whichever daemon is asked."""

    def __init__(self, world: World, storms: KindStorms, *, history: KindHistory) -> None:
        self._world, self._storms, self._history = world, storms, history
        self._chance = random.Random(f"{world.seed} calls")
        self.raging = False

    def make(
        self, actor: Key, call: MakeCall, *, answer: Callable[[Key, CallAnswered], None]
    ) -> None:
        """Answer a call after a moment; or not, then the actor makes it again."""
        chance, later, world = self._chance, self._world.later, self._world
        until_s = world.now + (FOLLOW_S if call.follow or call.until else 0.0)

        def then() -> None:
            found = self._answer(actor, call)
            if found is not None:
                answer(actor, found)
            elif world.now < until_s:
                later.at(world.now + ANSWER_S_MAX, then)

        times = 1
        if self.raging:
            drawn = chance.random()
            times = 0 if drawn < LOST else 2 if drawn < LOST + TWICE else 1
        for _ in range(times):
            later.at(self._world.now + chance.random() * ANSWER_S_MAX, then)

    def _answer(self, actor: Key, call: MakeCall) -> CallAnswered | None:
        calls, which = self._history.calls, (actor, call.id)
        known = calls.get(which)
        if known is not None and not call.follow:
            return known  # type: ignore[no-any-return]
        if self._storms.answer is None:
            return CallAnswered(call.id, "UNIMPLEMENTED", "these storms have no `answer`")
        found = self._storms.answer(actor, call, self._history, self._chance)
        if found is not None:
            calls[which] = found
        return found
