"""The status of one daemon: which servers it cannot reach, and what is wrong with its shells.

Turns the reports of shells into a `DaemonHealth`, and into the answer to a call that cannot be
delivered. Written on the thread of the shards only, read from any; nothing here waits or locks. An
outage of a server is logged twice: when it begins and when it ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from peloton.runtime.core.disk_room import DiskRoom
from peloton.runtime.core.health import (
    DISK,
    JOURNAL,
    MOVING,
    ZOOKEEPER,
    DaemonHealth,
    NotReadyReason,
    Unowned,
    silent,
    why_unowned,
)
from peloton.runtime.ports import SessionState, ShardId
from peloton.runtime.shells.routing import RoutingTable
from peloton.runtime.vocabulary import ShardDamaged, Unavailable

SLOW_WRITE_S = 3.0
"""A write that has no answer for so long is what a client would wait for, too."""
REPORT_AGAIN_S = 10.0
"""An outage of the same server is logged at most once in so many seconds."""
ROWS = "-rows"
"""Suffix to the name of a shard: the trouble is a row that cannot be read."""


class _Outage:
    """A server that does not answer."""

    def __init__(self, text: str, since_s: float) -> None:
        self.text = text
        self.since_s = since_s
        self.reported = self.full = False
        self.shards: dict[ShardId, bool] = {}  # affected ones; False: it is not local any more


class Status:
    """The troubles that one daemon knows of."""

    def __init__(self, routes: RoutingTable, sizes: Mapping[str, int]) -> None:
        self.problems: dict[str, str] = {}
        """What is wrong with a shell or a backend, by its name."""
        self.peers: dict[str, str] = {}
        """Why calls to a peer fail, by its member id; under our own why our address is no use."""
        self.damaged: dict[ShardId, str] = {}
        """Shards that this daemon could not recover, with the reason."""
        self.dead = ""
        """Why this process cannot go on."""
        self.closed = False
        self.now: Callable[[], float] = lambda: 0.0
        self.rooms: Callable[[], tuple[DiskRoom, ...]] = lambda: ()
        """Measures the disks under our folders."""
        self.notes: list[Callable[[], Iterable[NotReadyReason]]] = []
        """What else people should know, and what is no reason against being ready."""
        self.optional: Collection[str] = ()
        """Groups that the cluster is ready without, where a shard of them is damaged."""
        self.report: Callable[[str], object] = lambda line: None
        """Takes lines for the daemon's log."""
        self._routes = routes
        self._shards = [ShardId(group, at) for group in sizes for at in range(sizes[group])]
        self._names = {f"{shard.group}-{shard.number}": shard for shard in self._shards}
        self._outages: dict[str, _Outage] = {}
        self._wrote_s: dict[str, float] = {}  # by server: when a write was answered last
        self._probes: dict[str, tuple[float, str]] = {}  # since when one is not, and why if known
        self._reported_s: dict[str, float] = {}

    # ---- servers ----

    def away(
        self, server: str, text: str, *, shard: ShardId | None = None, full: bool = False
    ) -> None:
        """Record that the server did not answer this shard, or the daemon as a whole (None).

        `full`: the server has no room, so that nothing can be written before the outage ends.
        """
        now = self.now()
        outage = self._outages.setdefault(server, _Outage(text, now))
        outage.text = text
        outage.full = outage.full or full
        if shard is not None:
            outage.shards[shard] = True
        last_s = self._reported_s.get(server)
        if not outage.reported and (last_s is None or now - last_s >= REPORT_AGAIN_S):
            outage.reported, self._reported_s[server] = True, now
            self.report(f"{server} is {silent(server, outage.since_s, now)}: {text}")

    def answered(self, server: str, shard: ShardId | None = None) -> None:
        """Record that the server answered this shard, or the daemon as a whole (None).

        The outage ends when no local shard is affected any more.
        """
        self._wrote_s[server] = self.now()
        outage = self._outages.get(server)
        if outage is None:
            return
        affected = [one for one, local in [*outage.shards.items()] if local and one != shard]
        outage.shards = dict.fromkeys(affected, True)
        if affected:
            return
        del self._outages[server]
        if outage.reported:
            self.report(f"{server} answers again, after {self.now() - outage.since_s:.0f} s")

    def peer_down(self, peer: str, text: str) -> None:
        """Record why calls to a peer, or to our own address, fail; an empty text clears it."""
        now, known = self.now(), peer in self.peers
        if text:
            self.peers[peer] = text
            last_s = self._reported_s.get(peer)
            if not known and (last_s is None or now - last_s >= REPORT_AGAIN_S):
                self._reported_s[peer] = now
                self.report(self._about(peer, text))
        elif known and self.peers.pop(peer) and self._reported_s.pop(peer, None) is not None:
            self.report(f"{peer} is in reach again")

    def _about(self, peer: str, text: str) -> str:
        status = self._routes.membership_status
        if status is None or peer != status.member:
            return text
        at = status.addresses().get(peer, "")
        return f"the own address {at} does not lead to this daemon: {text}"

    def left(self, shard: ShardId) -> None:
        """Record that a shard is not local; its report of an outage counts until the next answer.

        If the shard was given up because of the outage, that stays the reason why it has no owner.
        """
        for outage in self._outages.values():
            if shard in outage.shards:
                outage.shards[shard] = False

    def moved(self) -> None:
        """Drop shards that others own now from our outages: owners have changed."""
        membership_status = self._routes.membership_status
        for server, outage in [*self._outages.items()]:
            gone = [
                shard
                for shard, local in outage.shards.items()
                if not local and membership_status is not None and membership_status.owner_of(shard)
            ]
            outage.shards = {
                shard: local for shard, local in outage.shards.items() if shard not in gone
            }
            if gone and not outage.shards:
                self.answered(server)

    # ---- the write that asks for nothing (from a thread of its own) ----

    def wrote_lately(self, server: str, *, within_s: float) -> bool:
        """Return whether a write was answered within that time, and none failed since."""
        last_s = self._wrote_s.get(server)
        return server not in self._probes and last_s is not None and last_s > self.now() - within_s

    def probing(self, server: str) -> None:
        """Begin a probing write, which shows what a client's write would meet."""
        self._probes.setdefault(server, (self.now(), ""))

    def probed(self, server: str, trouble: str) -> None:
        """Record the outcome of the probing write: an empty `trouble` if it was answered."""
        since_s, _ = self._probes.get(server, (self.now(), ""))
        if trouble:
            self._probes[server] = since_s, trouble
        else:
            self._probes.pop(server, None)
            self._wrote_s[server] = self.now()

    # ---- reading ----

    @property
    def here(self) -> str:
        """Return ` at ADDRESS` for texts that reach other daemons' callers; empty without peers."""
        status = self._routes.membership_status
        address = status.addresses().get(status.member) if status is not None else ""
        return f" at {address}" if address else ""

    def daemon_health(self) -> DaemonHealth:
        """Return whether this daemon is live and ready, and everything that is wrong."""
        rooms = self.rooms()
        full = [room for room in rooms if room.is_full and JOURNAL in room.of]
        found = [*self._reasons(), *(NotReadyReason(DISK, str(room)) for room in full)]
        reasons = (*itertools.filterfalse(self._is_optional, found),)
        scarce = (room for room in rooms if room.is_scarce and room not in full)
        scarcities = (NotReadyReason(DISK, str(room)) for room in scarce)
        idle = (*(note for note in self._peers() if not note.shards), *self._unfit())
        others = filter(self._is_optional, found)
        remarks = (*others, *scarcities, *idle, *(note for notes in self.notes for note in notes()))
        live = not self.dead and not self.closed
        return DaemonHealth(live, live and not reasons, reasons, remarks, rooms)

    def _is_optional(self, reason: NotReadyReason) -> bool:
        return bool(reason.shards) and all(
            shard.group in self.optional and (reason.damaged or shard in self.damaged)
            for shard in reason.shards
        )

    def no_room(self) -> Unavailable | None:
        """Return the answer to a command while the journal's disk is full; else None."""
        outage = self._outages.get(DISK)
        if outage is None or not outage.full:
            return None
        text = f"full for {max(self.now() - outage.since_s, 0.0):.0f} s: {outage.text}"
        return Unavailable(f"{DISK} under {JOURNAL} is {text}; no change is accepted meanwhile")

    def refusal(self, shard: ShardId) -> Unavailable:
        """Return the answer to a call for a shard without an owner."""
        why = self.unowned(shard)
        if why.damaged:
            return ShardDamaged(f"{shard} is damaged: {why.text}")
        return Unavailable(f"{shard} has no owner: {why.text}")

    def unowned(self, shard: ShardId) -> Unowned:
        """Return why the shard has no owner, as far as this daemon knows."""
        membership_status = self._routes.membership_status
        if membership_status is None and shard in self.damaged:
            return Unowned(self.damaged[shard], True)
        now = self.now()
        for server, outage in [*self._outages.items()]:
            if shard in outage.shards or server == ZOOKEEPER:
                return Unowned(f"{server} is {silent(server, outage.since_s, now)}")
        if membership_status is not None:
            if membership_status.view is None:
                return Unowned("this daemon has not joined the cluster yet")
            found = why_unowned(shard, membership_status.view)
            own = self.damaged.get(shard)
            return Unowned(f"{own}; {found.text}", found.damaged) if own else found
        trouble = self.problems.get(f"{shard.group}-{shard.number}")
        return Unowned(trouble or MOVING)

    def doubt(self) -> str:
        """Return why no query is answered here as current."""
        outage = self._outages.get(ZOOKEEPER)
        if outage is None:
            return "this daemon's session is in doubt: try again"
        since = silent(ZOOKEEPER, outage.since_s, self.now())
        return f"this daemon's session is in doubt: {ZOOKEEPER} is {since}; try again"

    # ---- reasons ----

    def _reasons(self) -> Iterator[NotReadyReason]:
        now = self.now()
        if self.dead:
            yield NotReadyReason("daemon", self.dead)
        outages = self._outages.copy()
        for server, outage in sorted(outages.items()):
            affected = tuple(sorted(outage.shards.copy()))
            if server == ZOOKEEPER:
                affected = tuple(sorted(self._routes.shards.copy()))
            yield NotReadyReason(
                server, f"{silent(server, outage.since_s, now)}: {outage.text}", affected
            )
        for server, (since_s, why) in sorted(self._probes.copy().items()):
            if server not in outages and (why or now - since_s >= SLOW_WRITE_S):
                text = why or "it does not answer a write"
                yield NotReadyReason(server, f"{silent(server, since_s, now)}: {text}")
        troubles = self.problems.copy()
        for name, text in sorted(troubles.items()):
            shard = self._names.get(name.removesuffix(ROWS))
            if shard is None:
                yield NotReadyReason(name, text)
            elif name.endswith(ROWS):
                yield NotReadyReason(str(shard), f"unreadable row: {text}", (shard,), damaged=True)
            elif shard not in self.damaged:
                yield NotReadyReason(str(shard), text, (shard,))
        if not self._routes.current and ZOOKEEPER not in outages and ZOOKEEPER not in troubles:
            # This process may have been paused, and its shells have not noticed yet.
            yield NotReadyReason(ZOOKEEPER, "the session is in doubt")
        yield from (reason for reason in self._peers() if reason.shards)
        yield from self._owners(troubles)

    def _unfit(self) -> Iterator[NotReadyReason]:
        status = self._routes.membership_status
        for group in status.unfit if status is not None else ():
            text = "this daemon could not serve them lately, and leaves them to others for a minute"
            yield NotReadyReason(f"shards of {group}", text)

    def _peers(self) -> Iterator[NotReadyReason]:
        """Yield the peers out of reach, with the shards that they own: calls of these fail here."""
        membership_status, peers = self._routes.membership_status, self.peers.copy()
        if membership_status is None:
            return
        owners = membership_status.view.owners if membership_status.view is not None else {}
        for peer, text in sorted(peers.items()):
            if peer == membership_status.member:
                yield NotReadyReason("exchange", self._about(peer, text))
            else:
                theirs = tuple(sorted(shard for shard, owner in owners.items() if owner == peer))
                yield NotReadyReason("peer", text, theirs)

    def _owners(self, troubles: Mapping[str, str]) -> Iterator[NotReadyReason]:
        """Yield damaged shards one by one; the others without an owner grouped by reason."""
        membership_status, here = self._routes.membership_status, self._routes.shards
        by_text: dict[str, list[ShardId]] = {}
        for name, shard in self._names.items():
            owned = (
                membership_status.owner_of(shard)
                if membership_status is not None
                else shard in here
            )
            if owned and shard not in self.damaged:
                if (
                    membership_status is not None
                    and owned == membership_status.member
                    and shard not in here
                ):
                    by_text.setdefault(MOVING, []).append(shard)
                continue
            if owned and membership_status is not None and owned != membership_status.member:
                continue  # another daemon has recovered it
            why = self.unowned(shard)
            if why.damaged or shard in self.damaged:
                text = why.text if why.damaged else f"{self.damaged[shard]}; {why.text}"
                yield NotReadyReason(str(shard), f"damaged: {text}", (shard,), damaged=why.damaged)
            elif name not in troubles:
                by_text.setdefault(why.text, []).append(shard)
        for text, shards in by_text.items():
            yield NotReadyReason("shards without an owner", text, tuple(shards))


def suspended(state: SessionState) -> str:
    """Describe a session that is not connected, for texts."""
    return f"the session is {state.value}"
