"""The actors of an extension's kind: tell, ask, list and watch them.

    locks = client.actors("lock")
    lease = locks.tell("reports", Acquire("ann", ttl_s=30), into=Lease)

A message or a query is an instance of the extension's class where that is installed, or else
(class name, fields). Without `into` an answer is a mapping of its fields.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from peloton.ops.v1 import actors_pb2 as wire
from peloton.ops.v1 import actors_pb2_grpc
from peloton.sdk.calls import Calls, M, call, stream
from peloton.sdk.errors import BadSpec, Conflict, NotFound, ServiceUnavailable, TryLater
from peloton.sdk.ops import Silence
from peloton.sdk.rpc import READ, RpcName, keyed
from peloton.sdk.wire import Wire

ActorInput = msgspec.Struct | tuple[str, Mapping[str, Any]]
Fields = dict[str, Any]


class ActorRefused(Conflict):
    """The actor refused a message and changed nothing. `kind` is its code; `field` is the path of
    what is wrong; `again`: the same message may be accepted later."""

    def __init__(self, message: str, *, kind: str, field: str, again: bool) -> None:
        super().__init__(f"{field}: {message}" if field else message, kind=kind)
        self.field, self.again = field, again


def _rpc(name: str) -> RpcName:
    return RpcName("api", actors_pb2_grpc.ActorsStub, name)


class ActorCalls(Calls[M]):
    """The calls of peloton.ops.v1.Actors on one kind."""

    def __init__(self, wire: Wire, kind: str) -> None:
        super().__init__(wire)
        self.kind = kind

    @call
    async def tell(
        self, name: str, message: ActorInput, *, into: Any = Fields, request_key: str | None = None
    ) -> Any:
        """Send a message and return the reply once its effect is durable. Raises ActorRefused."""
        cls, body = _encoded(message)
        request = wire.TellRequest(kind=self.kind, name=name, message=cls, body=body)
        answer = await self._wire.call(_rpc("Tell"), request, how=keyed(request_key))
        if answer.HasField("refused"):
            no = answer.refused
            raise ActorRefused(no.text, kind=no.code, field=no.field, again=no.again)
        return msgspec.json.decode(answer.body or b"{}", type=into)

    @call
    async def ask(self, name: str, query: ActorInput, *, into: Any = Fields) -> Any:
        """Return the answer to a query. Raises NotFound if there is no such actor."""
        cls, body = _encoded(query)
        request = wire.AskRequest(kind=self.kind, name=name, query=cls, body=body)
        return msgspec.json.decode((await self._wire.call(_rpc("Ask"), request)).body, type=into)

    @call
    async def state(self, name: str, *, into: Any = Fields) -> Any:
        """Return the state of an actor, or None if there is no such actor."""
        try:
            return await self.ask(name, ("GetState", {}), into=into)
        except NotFound as error:
            if error.kind == "NOT_FOUND" and "kind:" not in error.message:
                return None
            raise

    @stream
    async def all(self, *, into: Any = Fields) -> AsyncGenerator[tuple[str, Any], None]:
        """Yield name and state of every actor of the kind, by name."""
        after = ""
        while True:
            request = wire.ListActorsRequest(kind=self.kind, after=after)
            page = await self._wire.call(_rpc("ListActors"), request)
            for actor in page.actors:
                yield actor.name, msgspec.json.decode(actor.state, type=into)
            after = page.after
            if not after:
                return

    @stream
    async def watch(
        self,
        name: str,
        *,
        into: Any = Fields,
        silent: Callable[[str], None] | None = None,
    ) -> AsyncGenerator[Any, None]:
        """Yield the state of an actor at once and after each change; None where there is none.

        Of changes in quick succession only the last is told. A stream that breaks is begun again;
        `silent` is as in `ops.wait`, and after SILENCE_MAX_S without an answer the error is raised.
        """
        silence, before, begun = Silence(silent, self._wire.now), b"", False
        while True:
            request = wire.WatchActorRequest(kind=self.kind, name=name)
            try:
                async with aclosing(self._wire.stream(_rpc("WatchActor"), request)) as told:
                    async for message in told:
                        silence.is_over()
                        if not begun or message.state != before:
                            begun, before = True, message.state
                            yield msgspec.json.decode(before, type=into) if before else None
                raise ServiceUnavailable("the stream ended")
            except (TryLater, ServiceUnavailable) as error:
                await silence.outlast(error, self._wire)


async def extension_kinds(wire_of: Wire) -> list[wire.Kind]:
    """Return the kinds of extensions that the cluster serves, with the schemas of their values."""
    return list((await wire_of.call(_rpc("ListKinds"), wire.ListKindsRequest(), how=READ)).kinds)


def _encoded(sent: ActorInput) -> tuple[str, bytes]:
    if isinstance(sent, tuple):
        name, fields = sent
    else:
        name, fields = type(sent).__name__, sent  # type: ignore[assignment]
    try:
        return name, msgspec.json.encode(fields)
    except (TypeError, msgspec.MsgspecError) as error:
        raise BadSpec(str(error), field=name) from error
