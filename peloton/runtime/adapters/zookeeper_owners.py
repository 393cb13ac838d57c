"""The owner nodes of one session: asked for and given back, one thing after the other per shard.

Turns the port's two calls into requests, and what came of them into exactly one answer each. It
must not guess: what was asked while the line was broken, or whose reply was lost with it, may have
happened, and says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from peloton.runtime.adapters.zookeeper_connection import Put, ZooKeeperConnection
from peloton.runtime.adapters.zookeeper_leaders import Leaders
from peloton.runtime.adapters.zookeeper_nodes import Leader, Paths, owner_bytes, owner_of
from peloton.runtime.adapters.zookeeper_writes import NodeStatus, Writes
from peloton.runtime.ports import NodeAnswer, NodeOutcome, ShardId

Do = Callable[[ShardId], None]


class OwnerNodeContext:
    """What the owner nodes of a session are made with: whose, where, and by what."""

    def __init__(
        self,
        connection: ZooKeeperConnection,
        *,
        member: str,
        paths: Paths,
        writes: Writes,
        put: Put,
    ) -> None:
        self.connection = connection
        self.member = member
        self.paths = paths
        self.writes = writes
        self.put = put


class Owners:
    """Those of one line; `say` is told the answers, `unsure` that a view is wanted."""

    def __init__(
        self,
        scene: OwnerNodeContext,
        *,
        roles: Mapping[str, tuple[str, Leader]],
        say: Callable[[NodeAnswer], None],
        unsure: Callable[[], None],
    ) -> None:
        self._scene = scene
        self._say = say
        self._unsure = unsure
        self._open = False
        self._doing: dict[ShardId, deque[Do]] = {}  # and what waits for it
        self.leaders = Leaders(
            scene.connection, writes=scene.writes, paths=scene.paths, roles=roles
        )

    def open(self) -> None:
        """Our node stands: requests are taken."""
        self._open = True
        self.leaders.write_all()

    def shut(self) -> None:
        """The line is broken."""
        self._open = False

    def create(self, shard: ShardId) -> None:
        """As the port says."""
        self._in_turn(shard, self._create)

    def remove(self, shard: ShardId) -> None:
        """As the port says."""
        self._in_turn(shard, self._remove)

    def _create(self, shard: ShardId) -> None:
        scene = self._scene

        def done(found: NodeStatus) -> None:
            another = owner_of(found.data) not in ("", scene.member)
            if found.trouble is None and found.ours:
                self._answer(shard, NodeOutcome.HELD, found=found)
                self.leaders.ours(shard, found.zxid)
            elif found.trouble is None and another:
                self._answer(shard, NodeOutcome.TAKEN, found=found)
            else:
                self._answer(shard, NodeOutcome.UNSURE)
                self._unsure()

        if not self._open:
            self._answer(shard, NodeOutcome.UNSURE)
            return
        path, data = scene.paths.owner(shard), owner_bytes(scene.member)
        scene.writes.create(path, data, tell=done, only_with=scene.paths.member(scene.member))

    def _remove(self, shard: ShardId) -> None:
        def done(found: NodeStatus) -> None:
            gone = found.trouble is None
            self._answer(shard, NodeOutcome.GONE if gone else NodeOutcome.UNSURE, found=found)

        if not self._open:
            self._answer(shard, NodeOutcome.UNSURE)
            return
        self.leaders.not_ours(shard)
        self._scene.writes.remove(self._scene.paths.owner(shard), done)

    def _answer(
        self, shard: ShardId, outcome: NodeOutcome, *, found: NodeStatus | None = None
    ) -> None:
        if found is None or outcome is NodeOutcome.UNSURE:
            self._say(NodeAnswer(self._scene.member, shard, outcome))
        else:
            owner = owner_of(found.data)
            self._say(NodeAnswer(self._scene.member, shard, outcome, found.zxid, owner))
        waiting = self._doing.pop(shard)
        if waiting:
            do = waiting.popleft()
            self._doing[shard] = waiting
            self._scene.put(lambda: do(shard))

    def _in_turn(self, shard: ShardId, do: Do) -> None:
        """Each takes several requests, so two of one shard at once would get mixed up."""
        waiting = self._doing.get(shard)
        if waiting is None:
            self._doing[shard] = deque()
            do(shard)
        else:
            waiting.append(do)
