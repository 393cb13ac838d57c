"""Streams of InternalHostService: statuses of runs and changes of hosts, from now on.

They are sent until the client ends the call or cancels the watch by its id. Nothing before the call
is sent. At most `WATCH_EVENTS_MAX` events are kept for a slow reader.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Iterable

from peloton.actors.host.messages import GetHost
from peloton.actors.host.state import Host, occupying_runs
from peloton.actors.resources import amount
from peloton.api.v1alpha.host import host_pb2 as host
from peloton.gateway.cluster.cluster_client import Code, end
from peloton.gateway.cluster.feed import ClusterFeed, SharedReading, present
from peloton.gateway.private.event_streams import event_of
from peloton.gateway.private.run_statuses import NumberedStatus, StatusBuffer
from peloton.gateway.server.long_calls import LongCall
from peloton.gateway.translate.texts import client_name
from peloton.private.hostmgr.hostsvc import hostsvc_pb2 as hostsvc
from peloton.runtime.core.reading.changes import Change
from peloton.runtime.core.reading.inspection import FollowChanges
from peloton.runtime.vocabulary import Key

WATCHES_MAX = 1000
WATCH_EVENTS_MAX = 4096
"""One change may hold the starts of a thousand runs; the original kept a hundred events."""
STATUS_TOPIC, HOST_TOPIC = "eventstream", "hostSummary"
MISSED = "changes may have been missed: read everything, and watch again"


class HostWatch:
    """One watch: what is to be sent, and whether it is over."""

    def __init__(self, call: LongCall) -> None:
        self.watch_id = str(uuid.uuid4())
        self._call = call
        self._woken = asyncio.Event()
        self._over: tuple[Code, str] | None = None
        self.statuses: deque[NumberedStatus] = deque()
        self.hosts: dict[Key, None] = {}

    def tell(self, status: NumberedStatus | None) -> None:
        """Take the next status, or None at the end of the stream of statuses."""
        if status is None:
            self.end(Code.UNAVAILABLE, MISSED)
        elif len(self.statuses) >= WATCH_EVENTS_MAX:
            self.end(Code.INTERNAL, f"event overflow: {self.watch_id}")
        else:
            self.statuses.append(status)
            self._woken.set()

    def changed(self, key: Key) -> None:
        """Record that a host has changed."""
        self.hosts[key] = None
        self._woken.set()

    def end(self, code: Code, text: str) -> None:
        self._over = self._over or (code, text)
        self._woken.set()

    async def wait(self) -> None:
        """Wait until there is something to send, or the watch is over."""
        await self._woken.wait()
        self._woken.clear()

    def stop_if_over(self) -> None:
        """End the call if the watch is over, once what was told before has been sent."""
        if self._over is not None:
            code, text = self._over
            end(self._call, code, text=text)


class HostChanges:
    """Changed hosts, for all watches of them."""

    def __init__(self) -> None:
        self.watches: dict[HostWatch, None] = {}
        self._over = False

    def add(self, watch: HostWatch) -> None:
        """Tell a watch of changes from now on; also if there are no more already."""
        self.watches[watch] = None
        if self._over:
            watch.end(Code.UNAVAILABLE, MISSED)

    @property
    def in_use(self) -> bool:
        """Return whether there are watches."""
        return bool(self.watches)

    def note(self, change: Change) -> bool:
        """Record that a host has changed."""
        for watch in self.watches:
            watch.changed(change.line.key)
        return True

    def miss(self) -> None:
        """End all watches, because changes may have been missed."""
        self._over = True
        for watch in self.watches:
            watch.end(Code.UNAVAILABLE, MISSED)


async def _no_change(shards: Iterable[Key]) -> HostChanges:
    return HostChanges()


class HostWatches:
    """The watches of one server, by id."""

    def __init__(self, feed: ClusterFeed, statuses: SharedReading[StatusBuffer]) -> None:
        self._feed, self._statuses = feed, statuses
        query = FollowChanges(kinds=("host",))
        self._hosts = SharedReading(feed, "host", query=query, begin=_no_change)
        self._open: dict[str, HostWatch] = {}

    async def watch_statuses(self, sent: hostsvc.WatchEventRequest, call: LongCall) -> None:
        """Serve a watch of runs."""
        Response = hostsvc.WatchEventStreamEventResponse
        watch = self._begin(sent, call, topic=STATUS_TOPIC)
        try:
            stream = await present(self._statuses, call)
            stream.listen(watch.tell)
            try:
                await call.write(Response(watch_id=watch.watch_id, topic=sent.topic))
                while True:
                    await watch.wait()
                    while watch.statuses:
                        update = event_of(watch.statuses.popleft())
                        message = Response(watch_id=watch.watch_id, topic=sent.topic)
                        message.mesos_task_update.CopyFrom(update)
                        await call.write(message)
                    watch.stop_if_over()
            finally:
                stream.readers.remove(watch.tell)
        finally:
            del self._open[watch.watch_id]

    async def watch_hosts(self, sent: hostsvc.WatchEventRequest, call: LongCall) -> None:
        """Serve a watch of hosts: each host that changes, as it is then."""
        Response = hostsvc.WatchHostSummaryEventResponse
        watch = self._begin(sent, call, topic=HOST_TOPIC)
        try:
            changes = await present(self._hosts, call)
            changes.add(watch)
            try:
                await call.write(Response(watch_id=watch.watch_id, topic=sent.topic))
                while True:
                    await watch.wait()
                    while watch.hosts:
                        key = next(iter(watch.hosts))
                        del watch.hosts[key]
                        summary = await self._summary(key)
                        if summary is not None:
                            message = Response(watch_id=watch.watch_id, topic=sent.topic)
                            message.hostSummaryEvent.CopyFrom(summary)
                            await call.write(message)
                    watch.stop_if_over()
            finally:
                del changes.watches[watch]
        finally:
            del self._open[watch.watch_id]

    def cancel(self, watch_id: str) -> bool:
        """End a watch; return whether there is one of that id."""
        found = self._open.get(watch_id)
        if found is not None:
            found.end(Code.CANCELLED, f"watch cancelled: {watch_id}")
        return found is not None

    def _begin(self, sent: hostsvc.WatchEventRequest, call: LongCall, *, topic: str) -> HostWatch:
        if sent.topic != topic:
            end(call, Code.INVALID_ARGUMENT, text=f"Invalid topic expected {topic}")
        if len(self._open) >= WATCHES_MAX:
            text = f"{WATCHES_MAX} watches are open already"
            end(call, Code.RESOURCE_EXHAUSTED, text=text)
        watch = HostWatch(call)
        self._open[watch.watch_id] = watch
        return watch

    async def _summary(self, key: Key) -> host.HostSummary | None:
        ask = self._feed.cluster.ask
        found = await self._feed.answered(lambda: ask(key, GetHost()), patience_s=None)
        return summary_of(key, found) if isinstance(found, Host) else None


def summary_of(key: Key, found: Host) -> host.HostSummary:
    """Return a host with what is free there."""
    free = found.capacity - found.used
    summary = host.HostSummary(
        hostname=client_name(key),
        resources={
            "cpu": amount(free.cpu),
            "memMb": amount(free.memory),
            "diskMb": amount(free.disk),
            "gpu": amount(free.gpu),
        },
    )
    for label in found.labels:
        summary.labels.add(key=label.key, value=label.value)
    taken = {port for _, some in occupying_runs(found) for port in some.ports}
    first, last = found.ports
    for port in sorted(one for one in taken if first <= one < last):
        if first < port:
            summary.available_ports.add(begin=first, end=port - 1)
        first = port + 1
    if first < last:
        summary.available_ports.add(begin=first, end=last - 1)
    return summary
