"""peloton.ops.v1.Actors: the actors of extensions' kinds, between JSON and their values.

A request is checked against the classes that the kind declares before anything is sent: what is
wrong in it is refused with the path of the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.feed import ClusterFeed, OutOfReach
from peloton.gateway.cluster.requests import request_of
from peloton.gateway.server.long_calls import LongCall
from peloton.gateway.translate.actor_keys import BadKey, extension_key
from peloton.ops.v1 import actors_pb2 as wire
from peloton.runtime.core.reading.inspection import FollowChanges
from peloton.runtime.core.reading.listing import Listed, ListViews, SortOrder
from peloton.runtime.kinds import Kind
from peloton.runtime.vocabulary import Absent, Key, Refused
from peloton.sdk.kit import GetState
from peloton.sdk.kit.json_form import BadValue, from_json, schema_of, to_json, told_classes

STREAMS_MAX = 1000
LISTED_MAX = 1000


class Actors:
    """The calls of the service; one method for each, named as on the wire."""

    def __init__(
        self, cluster_client: ClusterClient, feed: ClusterFeed, *, kinds: Mapping[str, Kind]
    ) -> None:
        self._cluster_client, self._feed, self._kinds = cluster_client, feed, kinds
        self._open = cluster_client.shared("streams of WatchActor")

    def ListKinds(self, sent: wire.ListKindsRequest, context: Context) -> Any:
        """Return the kinds that are installed beside this daemon."""
        return wire.ListKindsResponse(kinds=map(_described, self._kinds.values()))

    def Tell(self, sent: wire.TellRequest, context: Context) -> Any:
        """Send a message, and return the reply once its effect is durable."""
        kind, key = self._addressed(sent, context)
        classes = told_classes(kind)
        message = _value(classes, sent.message, body=sent.body, field="message", context=context)
        request = request_of(sent, context)
        answer = self._cluster_client.ask(key, message, context=context, request=request)
        if isinstance(answer, Refused):
            refused = wire.Refusal(
                code=answer.code, text=answer.text, field=answer.field, again=answer.again
            )
            return wire.TellResponse(refused=refused)
        if answer is None:
            return wire.TellResponse()
        return wire.TellResponse(reply=type(answer).__name__, body=to_json(answer))

    def Ask(self, sent: wire.AskRequest, context: Context) -> Any:
        """Return the answer to a query."""
        kind, key = self._addressed(sent, context)
        query = _value(kind.queries, sent.query, body=sent.body, field="query", context=context)
        answer = self._cluster_client.ask(key, query, context=context)
        if isinstance(answer, Absent):
            end(context, Code.NOT_FOUND, text=f"there is no actor {key}")
        return wire.AskResponse(reply=type(answer).__name__, body=to_json(answer))

    def ListActors(self, sent: wire.ListActorsRequest, context: Context) -> Any:
        """Return a page of actors by name."""
        kind = self._kind(sent.kind, context)
        limit = min(sent.limit or LISTED_MAX, LISTED_MAX)
        query = ListViews(
            kind.name,
            order=(SortOrder("key"),),
            limit=limit,
            after=Key(f"{kind.name}/{sent.after}") if sent.after else Key(""),
        )
        cluster = self._cluster_client.cluster
        pages = self._cluster_client.each(
            [(shard, query) for shard in cluster.shards_of(kind.name)], context
        )
        found, until = list[Any](), ""
        for page in pages:
            if not isinstance(page, Listed):
                end(context, Code.INTERNAL, text="a shard answered a listing with something else")
            found += page.items
            until = min(filter(None, (until, page.after)), default="")
        # Behind the place where one shard stopped, others would be listed without its own.
        rows = sorted((row for row in found if not until or row.key <= until), key=_key)
        more = until or (len(rows) > limit and rows[limit - 1].key)
        some = [wire.Actor(name=_name(row.key), state=to_json(row.state)) for row in rows[:limit]]
        return wire.ListActorsResponse(actors=some, after=some[-1].name if more and some else "")

    async def WatchActor(self, sent: wire.WatchActorRequest, call: LongCall) -> None:
        """Stream the states of one actor."""
        self._cluster_client.take_quota(self._open, call, most=STREAMS_MAX)
        try:
            _, key = self._addressed(sent, call)
            try:
                await self._follow(key, call)
            except OutOfReach as error:
                end(call, Code.UNAVAILABLE, text=str(error))
        finally:
            self._open.leave(call.principal)

    async def _follow(self, key: Key, call: LongCall) -> None:
        """Write the state whenever the actor has changed since it was read last."""
        shard = self._cluster_client.cluster.shard_of(key)
        query = FollowChanges(names=(_name(key),), kinds=(key.partition("/")[0],))
        mark, before = await self._feed.mark(shard), None
        while True:
            state = await self._feed.answered(
                lambda: self._cluster_client.cluster.ask(key, GetState()), patience_s=None
            )
            body = b"" if isinstance(state, Absent) else to_json(state)
            if body != before:
                await call.write(wire.WatchActorResponse(state=body))
                before = body
            page = await self._feed.page(shard, query.behind(mark), patience_s=None)
            mark = page.mark

    # ---- inside ----

    def _kind(self, name: str, context: Context) -> Kind:
        kind = self._kinds.get(name)
        if kind is None:
            self._refuse_kind(name, context)
        return kind

    def _refuse_kind(self, name: str, context: Context) -> NoReturn:
        if self._cluster_client.cluster.routes.members_with(name):
            # Clients try their next address then.
            text = f"kind {name!r} is not installed at this daemon, but at others of the cluster"
            end(context, Code.UNAVAILABLE, text=text)
        known = ", ".join(self._kinds) or "none"
        text = f"no kind {name!r} of an extension in this cluster; there are {known}"
        end(context, Code.NOT_FOUND, text=text, field="kind")

    def _addressed(self, sent: Any, context: Context) -> tuple[Kind, Key]:
        kind = self._kind(sent.kind, context)
        try:
            return kind, extension_key(kind.name, sent.name)
        except BadKey as error:
            end(context, Code.INVALID_ARGUMENT, text=str(error), field="name")


def _value(
    classes: Mapping[int, type], name: str, *, body: bytes, field: str, context: Context
) -> Any:
    """Return the value that a request has; end the call if it is none of these classes."""
    try:
        return from_json(classes, name, body=body)
    except BadValue as error:
        end(context, Code.INVALID_ARGUMENT, text=str(error), field=error.field or field)


def _described(kind: Kind) -> wire.Kind:
    return wire.Kind(
        name=kind.name,
        messages=sorted(cls.__name__ for cls in told_classes(kind).values()),
        queries=sorted(cls.__name__ for cls in kind.queries.values()),
        schema=schema_of(kind),
    )


def _key(row: Any) -> str:
    return str(row.key)


def _name(key: Key) -> str:
    return key.partition("/")[2]
