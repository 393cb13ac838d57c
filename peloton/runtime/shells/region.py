"""The region: how the gateway, backends and shards reach every entity of the cluster.

Delivers envelopes to the inboxes of local shards and ephemeral services, and passes the others to
the peer shell as batches. Everything may be called from any thread; nothing here waits or locks.
Mail that cannot be delivered is dropped, as every sender repeats what matters; calls are answered
`Unavailable`. `routing.py` knows where a shard lives.

    future = region.ask(key, message)     an answer, or Unavailable; never an exception
    region.tell([Envelope(key, message)])
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from peloton.runtime.core.ended.retention import RetainedEnded
from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.health import DaemonHealth
from peloton.runtime.core.links.packing import Route
from peloton.runtime.core.reading.changes import PAGE_MAX, Change
from peloton.runtime.core.reading.inspection import (
    ChangesPage,
    FollowChanges,
    ListDeadLetters,
    ReadChanges,
    ReadStory,
    Redrive,
    changes_of,
    facts_of,
    shard_key,
    story_lines,
)
from peloton.runtime.core.reading.listing import Listed, ListViews, onwards
from peloton.runtime.core.shard import Shard
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.core.turning.envelope import Envelope, Stamp
from peloton.runtime.kinds import Kind
from peloton.runtime.ports import ShardId
from peloton.runtime.shells.future_answers import all_answers, then
from peloton.runtime.shells.peer_messages import Inbound, Outbound
from peloton.runtime.shells.routing import RemoteRoute, RoutingTable
from peloton.runtime.shells.shell_messages import (
    Inspect,
    Mail,
    PeerReachable,
    Ref,
    reply_addresses,
    resolve,
    send,
)
from peloton.runtime.shells.status import Status
from peloton.runtime.vocabulary import Bits, Key, Message, Query, Unavailable, kind_of


class Region:
    """The shards and ephemeral services of one daemon, and the way to all others."""

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        *,
        codec: Codec,
        sharding: Sharding,
        sizes: Mapping[str, int],
    ) -> None:
        self._codec = codec
        self._kinds = kinds
        self._sharding = sharding
        self._sizes = sizes
        self.routes = RoutingTable(kinds, sharding)
        self.status = Status(self.routes, sizes)
        self.post: Callable[[Outbound], object] | None = None
        """Takes mail for other daemons; None: there are none, or they are out of reach."""
        self.on_service: Callable[..., Ref] | None = None  # of (prefix, service, outward)

    @property
    def closed(self) -> bool:
        """Whether this daemon is stopping."""
        return self.status.closed

    # ---- sending ----

    def tell(self, envelopes: Iterable[Envelope], stamp: Stamp | None = None) -> None:
        """Send messages to wherever their keys live; those for one route arrive in this order.

        `stamp` names the sending shard, if the sender is one.
        """
        batches: dict[Any, list[Envelope]] = {}
        routes_of = self.routes.of
        for envelope in envelopes:
            routes = routes_of(envelope.to)
            if not routes:
                self._refuse([envelope], f"no shard or service has the key {envelope.to}")
            for route in routes:
                batch = batches.get(route)
                if batch is None:
                    batches[route] = [envelope]
                else:
                    batch.append(envelope)
        for route, batch in batches.items():
            if isinstance(route, RemoteRoute):
                self._send_remote(route, batch, stamp=stamp)
            elif not send(route, Mail(batch, stamp)):
                self._refuse(batch, "the shard is moving")

    def hand_over(
        self,
        envelopes: Iterable[Envelope],
        stamp: Stamp,
        *,
        company: Container[Ref],
        withheld: dict[Hashable, None],
    ) -> tuple[list[Envelope], Iterable[Ref]]:
        """Send what goes to one of `company`; return all other envelopes, and the refs with mail.

        `withheld`: the keys for which a message waits already, as later ones must not overtake it;
        those of the other envelopes are added.
        """
        others: list[Envelope] = []
        batches: dict[Ref, list[Envelope]] = {}
        here = self.routes.here
        for envelope in envelopes:
            part, ref = here(envelope.to)
            if ref is None or ref not in company or part in withheld:
                others.append(envelope)
                withheld[part] = None
            elif ref in batches:
                batches[ref].append(envelope)
            else:
                batches[ref] = [envelope]
        for ref, batch in batches.items():
            self.deliver_to(ref, batch, stamp=stamp)
        return others, batches

    def deliver_to(self, ref: Ref, batch: list[Envelope], *, stamp: Stamp) -> None:
        """Put messages of a local shard into the inbox of a local actor."""
        if not send(ref, Mail(batch, stamp)):
            self._refuse(batch, "the shard is moving")

    def ask(
        self,
        key: Key,
        message: Message | Query,
        *,
        members: Bits | None = None,
        request: tuple[str, bytes] | None = None,
        who: str = "",
    ) -> Future[Any]:
        """Send a command or a query; the answer comes when the frame it depends on is committed.

        While our session is in doubt no query is answered: a younger owner may have newer state.
        Commands are answered, because the journal refuses the frames of a former owner.
        """
        future: Future[Any] = Future()
        if isinstance(message, Query):
            if not self.routes.current:
                resolve(future, Unavailable(self.status.doubt()))
                return future
            answer = self.read(key, message)
            if answer is not None:
                resolve(future, answer)
                return future
        elif (refusal := self.status.no_room()) is not None:
            resolve(future, refusal)
            return future
        raw = members.raw if members is not None else 0
        content: Any = message  # a query is sent like a message
        self.tell((Envelope(key, content, raw, reply_to=future, request=request, who=who),))
        return future

    def read(self, key: Key, query: Query) -> Any:
        """Return the answer to a query that needs no turn; None if the shard has to be asked.

        Local shards publish states once they are durable, before they acknowledge anything of them.
        """
        return None if self.status.closed else self.routes.read(key, query)

    # ---- inspecting ----

    def shards_of(self, kind: str) -> list[Key]:
        """Return the shards that have the entities of a kind; each answers `ListViews`."""
        group = self._kinds[kind].group
        return [shard_key(ShardId(group, number)) for number in range(self._sizes[group])]

    def views(self, kind: str) -> Future[Any]:
        """Return all summaries of a kind, for kinds with few entities; never a part of them."""
        answers = [self._pages(shard, ListViews(kind)) for shard in self.shards_of(kind)]
        return then(all_answers(answers), lambda lists: [item for some in lists for item in some])

    def quarantine(self) -> Future[Any]:
        """Return all dead letters and quarantined actors of the cluster: a list of (key, fact)."""

        def facts(rows: list[Any]) -> list[Any]:
            return [pair for each in rows for pair in facts_of(self._codec, each)]

        answers = [self._ask_all(group, ListDeadLetters()) for group in sorted(self._sizes)]
        whole = then(all_answers(answers), lambda lists: [each for some in lists for each in some])
        return then(whole, facts)

    def message_name(self, key: Key, number: int) -> str:
        """Return the name of a dead letter's message, whose number this version may not know."""
        known = self._codec.messages_of(key).get(number)
        return known.__name__ if known is not None else f"{kind_of(key)} message {number}"

    def redrive(self, key: Key) -> Future[Any]:
        """Deliver the dead letters of an entity again, and lift its quarantine."""
        return self.ask(shard_key(self._sharding.shard_of(key)), Redrive(key))

    def story(self, key: Key, member: int | None = None) -> Future[Any]:
        """Return what an entity (or a member of a crowd) did lately and why, as `StoryLine`s."""
        query = ReadStory(key, -1 if member is None else member)
        answer = self.ask(shard_key(self._sharding.shard_of(key)), query)
        return then(answer, lambda rows: story_lines(self._codec, rows))

    def changes(
        self, shard: ShardId, after: tuple[int, int] | None, *, limit: int = PAGE_MAX
    ) -> Future[Any]:
        """Return a shard's changes after a mark, as a `ChangesPage`; None: the present mark.

        Marks stay valid across restarts and owners; changes too old to be kept are a gap.
        """
        return self.ask(shard_key(shard), ReadChanges(after, limit))

    def shard_of(self, key: Key) -> Key:
        """Return the key of the shard of an entity, for `follow`."""
        return shard_key(self._sharding.shard_of(key))

    def follow(self, shard: Key, query: FollowChanges) -> Future[Any]:
        """Return the changes of a shard after a mark, as a `ChangesPage`, as soon as there are any.

        The answer is `Unavailable` if the shard moves or restarts: call again with the same mark.
        """
        return self.ask(shard, query)

    def changes_in(self, read: ChangesPage) -> list[Change]:
        """Decode the changes of a page, on the thread of the caller."""
        return changes_of(self._codec, read)

    def inspect(self, shard: ShardId, function: Callable[[Shard], Any]) -> Future[Any]:
        """Call a function with the core of a local shard, between two turns.

        The function must copy what it returns, and must not change anything: it runs on the shard's
        states.
        """
        future: Future[Any] = Future()
        ref = self.routes.shards.get(shard)
        if ref is None or not send(ref, Inspect(function, future)):
            resolve(future, Unavailable(f"{shard} is not owned here"))
        return future

    def health(self) -> tuple[bool, list[str]]:
        """Return whether this daemon is ready, and the reasons if it is not."""
        health = self.daemon_health()
        return health.ready, [str(reason) for reason in health.reasons]

    def daemon_health(self) -> DaemonHealth:
        """Return whether this daemon is live and ready, and all that is wrong."""
        return self.status.daemon_health()

    def ended_retained(self, kind: str) -> list[RetainedEnded]:
        """Return what each local shard has in memory of ended entities of a kind."""
        found = (reads.ended.get(kind) for reads in [*self.routes.reads.values()])
        return [one for one in found if one is not None]

    def owned(self) -> list[ShardId]:
        """Return the local shards, including those that recover."""
        return sorted(self.routes.shards)

    # ---- for the root, the claim shell and the peers ----

    def register_service(
        self, prefix: str, service: Any, *, role: str | None = None, outward: bool = False
    ) -> None:
        """Route the mail for all keys with the prefix to this ephemeral service.

        A prefix that is a whole key means this key alone. With a `role` every member of that role
        runs one instance; without, each daemon has its own. An `outward` service acts on the world,
        so it gets mail only while our session is valid. Raises `RuntimeError` before `assemble`.
        """
        if self.on_service is None:
            raise RuntimeError("register ephemeral services after the daemon was assembled")
        if role is not None:
            self.routes.roles[prefix] = role
        ref = self.routes.services[prefix] = self.on_service(prefix, service, outward=outward)
        # The session may begin on another thread right now. That thread sets our name first and
        # then notifies the registered services; here the order is reversed, so at least one of the
        # two notifies this one. Without its name a service would never receive its answers.
        if self.routes.me:
            send(ref, self.routes.named(prefix))

    def set_shard(self, shard: ShardId, ref: Ref | None) -> None:
        """Route the mail of the shard to this actor; None: the shard is not local any more."""
        self.routes.set_shard(shard, ref)

    def deliver(self, arrived: Inbound) -> bool:
        """Accept a batch from a peer; return False if its route is not local."""
        if self.routes.is_late(arrived.route, arrived.view):
            return False
        ref = self.routes.local(arrived.route)
        sender = arrived.sender
        stamp = Stamp(sender, arrived.epoch) if sender is not None else None
        return ref is not None and send(ref, Mail(arrived.envelopes, stamp))

    def misdirected(self, peer: str, route: Route, *, view: int) -> None:
        """Handle a batch that the peer refused: one of the two views is old.

        Shards repeat what is owed now, because the newer view may have come before the refusal.
        """
        if isinstance(route, ShardId):  # clients of an ephemeral service repeat by themselves
            self.peer_reachable()

    def peer_reachable(self) -> None:
        """Let shards and services repeat what is owed and asked. A shard has a new owner, or a peer
        is reachable again."""
        for ref in [*self.routes.shards.values(), *self.routes.requesting]:
            send(ref, PeerReachable())

    def links_reset(self, text: str) -> None:
        """Report that all links were reset, and repeat what may have been lost."""
        self.report_problem("peer", text)
        self.peer_reachable()

    def report_problem(self, name: str, text: str) -> None:
        """Report what is wrong with a shell or a backend; an empty text clears it."""
        if text:
            self.status.problems[name] = text
        elif name in self.status.problems:
            self.status.problems.pop(name, None)

    def _send_remote(self, to: RemoteRoute, batch: list[Envelope], *, stamp: Stamp | None) -> None:
        if self.closed:
            self._refuse(batch, "this daemon is stopping")
        elif not to.peer and isinstance(to.route, ShardId):
            self._answer(batch, self.status.refusal(to.route))
        elif not to.peer:
            self._refuse(batch, f"no owner of {to.route} is known here")
        elif self.post is None:
            self._refuse(batch, "this daemon has left")
        else:
            sender, epoch = stamp if stamp is not None else (None, 0)
            self.post(Outbound(to.peer, self.routes.view, to.route, batch, sender, epoch))

    def _refuse(self, batch: list[Envelope], text: str) -> None:
        self._answer(batch, Unavailable(text))

    def _answer(self, batch: list[Envelope], answer: Any) -> None:
        for reply_to in reply_addresses(batch):
            resolve(reply_to, answer)

    def _pages(self, shard: Key, query: ListViews) -> Future[Any]:
        """Return the whole listing of a shard, read page by page."""
        whole: Future[Any] = Future()
        found: list[Any] = []

        def add_pages(part: Future[Any]) -> None:
            # A loop, as many pages in a row may be answered at once.
            while part.done():
                listed = part.result()
                if not isinstance(listed, Listed):
                    resolve(whole, listed)
                    return
                found.extend(listed.items)
                if not listed.after:
                    resolve(whole, found)
                    return
                part = self.ask(shard, onwards(query, listed))
            part.add_done_callback(add_pages)

        add_pages(self.ask(shard, query))
        return whole

    def _ask_all(self, group: str, query: Query) -> Future[Any]:
        """Return the answers of all shards of a group; unavailable if one of them is."""
        shards = [ShardId(group, number) for number in range(self._sizes[group])]
        return all_answers([self.ask(shard_key(shard), query) for shard in shards])
