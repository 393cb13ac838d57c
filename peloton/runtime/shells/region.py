"""The region: the door to all entities of this daemon. The gateway, backends and shards use it.

Turns keys into the inboxes of their shards or soft machines, or into letters for the daemon that
has them. All of it may be called from any thread; nothing here waits or locks. It must not decide
where a shard lives (`places.py`), and what it cannot deliver it drops, for every sender says again
what matters, or refuses the asker.

    future = region.ask(key, message)     an answer, or Unavailable; never an exception
    region.tell([Envelope(key, message)])
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from peloton.runtime.core.changes import PAGE_MAX, Change
from peloton.runtime.core.codec import Codec
from peloton.runtime.core.condition import Condition
from peloton.runtime.core.envelope import Envelope, Stamp
from peloton.runtime.core.inspection import (
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
from peloton.runtime.core.listing import Listed, ListViews, onwards
from peloton.runtime.core.packing import Route
from peloton.runtime.core.shard import Shard
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.core.supervision import attempt_query
from peloton.runtime.ports import ShardId
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
from peloton.runtime.vocabulary import Bits, Key, Kind, Message, Query, Unavailable


class Region:
    """Where the shards and soft machines of one daemon are found."""

    def __init__(
        self, kinds: Mapping[str, Kind], *, sharding: Sharding, sizes: Mapping[str, int]
    ) -> None:
        self._codec = Codec(kinds)
        self._kinds = kinds
        self._sharding = sharding
        self._sizes = sizes
        self.places = RoutingTable(kinds, sharding)
        self.status = Status(self.places, sizes)
        self.post: Callable[[Outbound], object] | None = None
        """Takes what belongs to other daemons; without it, they are out of reach."""
        self.on_service: Callable[..., Ref] | None = None  # of (prefix, machine, outward)

    @property
    def closed(self) -> bool:
        """Whether this daemon is stopping."""
        return self.status.closed

    # ---- saying ----

    def tell(self, envelopes: Iterable[Envelope], stamp: Stamp | None = None) -> None:
        """Messages to wherever their keys live; those for one place arrive in this order.

        `stamp` names the shard that speaks, if one does.
        """
        batches: dict[Any, list[Envelope]] = {}
        find = self.places.of
        for envelope in envelopes:
            found = find(envelope.to)
            if not found:
                self._refuse([envelope], f"nobody here knows {envelope.to}")
            for place in found:
                batch = batches.get(place)
                if batch is None:
                    batches[place] = [envelope]
                else:
                    batch.append(envelope)
        for place, batch in batches.items():
            if isinstance(place, RemoteRoute):
                self._send_away(place, batch, stamp=stamp)
            elif not send(place, Mail(batch, stamp)):
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
        """A command or a query; its answer, once the frame it was seen under is safe.

        While our session is in doubt no query is answered: a younger owner may know better.
        Commands are, for the journal itself refuses those of an owner that is none any more.
        """
        future: Future[Any] = Future()
        if isinstance(message, Query) and not self.places.current:
            resolve(future, Unavailable(self.status.doubt()))
            return future
        raw = members.raw if members is not None else 0
        said: Any = message  # a query travels like a message
        self.tell((Envelope(key, said, raw, reply_to=future, request=request, who=who),))
        return future

    # ---- looking ----

    def shards_of(self, kind: str) -> list[Key]:
        """The shards that have the entities of a kind; each may be asked for `ListViews`."""
        group = self._kinds[kind].group
        return [shard_key(ShardId(group, number)) for number in range(self._sizes[group])]

    def views(self, kind: str) -> Future[Any]:
        """All summaries of a kind, for those that are few; never a part of them."""
        asked = [self._pages(shard, ListViews(kind)) for shard in self.shards_of(kind)]
        return _then(_all(asked), lambda lists: [item for some in lists for item in some])

    def quarantine(self) -> Future[Any]:
        """What is set aside or in quarantine, anywhere: a list of (key, fact)."""

        def facts(told: list[Any]) -> list[Any]:
            return [pair for each in told for pair in facts_of(self._codec, each)]

        asked = [self._ask_all(group, ListDeadLetters()) for group in sorted(self._sizes)]
        whole = _then(_all(asked), lambda lists: [each for some in lists for each in some])
        return _then(whole, facts)

    def redrive(self, key: Key) -> Future[Any]:
        """Take back what was set aside, and lift the quarantine."""
        return self.ask(shard_key(self._sharding.shard_of(key)), Redrive(key))

    def story(self, key: Key, member: int | None = None) -> Future[Any]:
        """What an entity (a member of a crowd) did lately and why: a list of `Line`."""
        query = ReadStory(key, -1 if member is None else member)
        asked = self.ask(shard_key(self._sharding.shard_of(key)), query)
        return _then(asked, lambda told: story_lines(self._codec, told))

    def changes(
        self, shard: ShardId, after: tuple[int, int] | None, *, limit: int = PAGE_MAX
    ) -> Future[Any]:
        """What was written down in a shard after a mark, as a `ChangesPage`; None: only the mark
        of now.

        The marks go on across restarts and owners; what is too long ago is told as a gap.
        """
        return self.ask(shard_key(shard), ReadChanges(after, limit))

    def shard_of(self, key: Key) -> Key:
        """The shard that an entity lives in, as one follows it."""
        return shard_key(self._sharding.shard_of(key))

    def follow(self, shard: Key, query: FollowChanges) -> Future[Any]:
        """What comes after a mark of a shard, as a `ChangesPage`, once there is something.

        Unavailable where the shard moves or restarts meanwhile: ask again with the same mark.
        """
        return self.ask(shard, query)

    def changes_in(self, read: ChangesPage) -> list[Change]:
        """The changes of a page, decoded on the caller's thread."""
        return changes_of(self._codec, read)

    def look(self, shard: ShardId, look: Callable[[Shard], Any]) -> Future[Any]:
        """Run a reader on a shard between two turns; it must copy what it takes away."""
        future: Future[Any] = Future()
        ref = self.places.shards.get(shard)
        if ref is None or not send(ref, Inspect(look, future)):
            resolve(future, Unavailable(f"{shard} is not owned here"))
        return future

    def health(self) -> tuple[bool, list[str]]:
        """Whether all is well, and if not, why."""
        condition = self.condition()
        return condition.ready, [str(reason) for reason in condition.reasons]

    def condition(self) -> Condition:
        """Whether this daemon is live and ready, and all that is wrong."""
        return self.status.condition()

    def owned(self) -> list[ShardId]:
        """The shards that live here now, recovering ones included."""
        return sorted(self.places.shards)

    # ---- for the root, the claim shell and the peers ----

    def register_service(
        self, prefix: str, machine: Any, *, role: str | None = None, outward: bool = False
    ) -> None:
        """From now on keys of this kind go to the machine (`shells/ephemeral.py` says what one is).
        A prefix that is a whole key means this one alone.

        Members with `role` have one each; without a role everybody has its own. An `outward` one
        acts on the world, so it gets its mail only while our session is sure.
        """
        if self.on_service is None:
            raise RuntimeError("register soft machines after the daemon was assembled")
        if role is not None:
            self.places.roles[prefix] = role
        ref = self.places.services[prefix] = self.on_service(prefix, machine, outward=outward)
        # Our session may have begun on another thread before this: whoever names the machines
        # sets the name first and then looks who there is, here it is the other way round, so one
        # of the two tells it. A machine without its name would wait for answers to a stranger.
        if self.places.me:
            send(ref, self.places.named(prefix))

    def place(self, shard: ShardId, ref: Ref | None) -> None:
        """The shard lives there from now on; None: no more here. For the root."""
        self.places.place(shard, ref)

    def deliver(self, arrived: Inbound) -> bool:
        """A letter from a peer; False where its place is not here."""
        if self.places.is_late(arrived.place, arrived.view):
            return False
        ref = self.places.here(arrived.place)
        sender = arrived.sender
        stamp = Stamp(sender, arrived.epoch) if sender is not None else None
        return ref is not None and send(ref, Mail(arrived.envelopes, stamp))

    def misdirected(self, peer: str, place: Route, *, view: int) -> None:
        """The peer has not what we sent: one of us has an old view, which mends itself. What was
        lost is said again when it has: the view that tells us may have come before the refusal."""
        if isinstance(place, ShardId):  # who wants a soft machine asks anew by himself
            self.reached()

    def reached(self) -> None:
        """A shard has a new owner, or a peer is there again: what was lost can be said anew."""
        for ref in [*self.places.shards.values()]:
            send(ref, PeerReachable())

    def broke(self, text: str) -> None:
        """The links began anew."""
        self.trouble("peer", text)
        self.reached()

    def trouble(self, name: str, text: str) -> None:
        """What is wrong with a shell right now; empty when nothing is."""
        if text:
            self.status.troubles[name] = text
        elif name in self.status.troubles:
            self.status.troubles.pop(name, None)

    def _send_away(self, to: RemoteRoute, batch: list[Envelope], *, stamp: Stamp | None) -> None:
        if self.closed:
            self._refuse(batch, "this daemon is stopping")
        elif not to.peer and isinstance(to.place, ShardId):
            self._answer(batch, self.status.refusal(to.place))
        elif not to.peer:
            self._refuse(batch, f"no owner of {to.place} is known here")
        elif self.post is None:
            self._refuse(batch, "this daemon has left")
        else:
            sender, epoch = stamp if stamp is not None else (None, 0)
            self.post(Outbound(to.peer, self.places.view, to.place, batch, sender, epoch))

    def _refuse(self, batch: list[Envelope], text: str) -> None:
        self._answer(batch, Unavailable(text))

    def _answer(self, batch: list[Envelope], answer: Any) -> None:
        for ask in reply_addresses(batch):
            resolve(ask, answer)

    def _pages(self, shard: Key, query: ListViews) -> Future[Any]:
        """All that a shard lists, one page after the other."""
        whole: Future[Any] = Future()
        found: list[Any] = []

        def heard(part: Future[Any]) -> None:
            listed = part.result()
            if not isinstance(listed, Listed):
                resolve(whole, listed)
                return
            found.extend(listed.items)
            if listed.after:
                self.ask(shard, onwards(query, listed.after)).add_done_callback(heard)
            else:
                resolve(whole, found)

        self.ask(shard, query).add_done_callback(heard)
        return whole

    def _ask_all(self, group: str, query: Query) -> Future[Any]:
        """The answers of all shards of a group; one that cannot makes the whole unavailable."""
        shards = [ShardId(group, number) for number in range(self._sizes[group])]
        return _all([self.ask(shard_key(shard), query) for shard in shards])


def _all(asked: list[Future[Any]]) -> Future[Any]:
    """A list of all answers, in order; or the first that is unavailable."""
    whole: Future[Any] = Future()
    done = itertools.count(1)  # whose `next` no other thread can split

    def one(part: Future[Any]) -> None:
        if isinstance(part.result(), Unavailable):
            resolve(whole, part.result())
            return
        if next(done) == len(asked):
            resolve(whole, [each.result() for each in asked])

    if not asked:
        resolve(whole, [])
    for each in asked:
        each.add_done_callback(one)
    return whole


def _then(asked: Future[Any], do: Callable[[Any], Any]) -> Future[Any]:
    """The answer, made into something else; what is unavailable stays so.

    Where it cannot be made, that is the answer: of a callback that raises nobody would hear, and
    who asked would wait for ever.
    """
    future: Future[Any] = Future()

    def done(part: Future[Any]) -> None:
        found = part.result()
        resolve(future, found if isinstance(found, Unavailable) else attempt_query(do, found))

    asked.add_done_callback(done)
    return future
