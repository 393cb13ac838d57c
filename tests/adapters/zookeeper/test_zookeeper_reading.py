"""One reading of ZooKeeper while others write: what a view's version may claim.

The tree is a small one in memory that answers in order, as a server does; changes fall between any
two answers. Watches are not played, so what is read late is late, as on a server.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest
from kazoo.exceptions import NoNodeError

from peloton.runtime.adapters.zookeeper_nodes import Paths, ViewReading, member_bytes
from peloton.runtime.ports import MemberNode, MembershipView, ShardId

PATHS = Paths("c")
NAMES = ("a", "b", "c")


class Stat(NamedTuple):
    mzxid: int
    pzxid: int = 0


class Reply(msgspec.Struct):
    value: Any = None
    exception: Exception | None = None
    zxid: int = 0


class Tree:
    """Nodes with the position of their last change; `between` is called before each answer."""

    def __init__(self, between: Callable[[Tree], None] = lambda tree: None) -> None:
        self.zxid = 0
        self.folders = {PATHS.members: 0, PATHS.owners: 0}
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self.history: list[tuple[int, str, bytes | None]] = []
        self.between = between

    def write(self, path: str, data: bytes | None) -> None:
        """Make, change or remove a node."""
        self.zxid += 1
        if (path in self.nodes) != (data is not None):
            self.folders[path.rpartition("/")[0]] = self.zxid
        if data is None:
            self.nodes.pop(path, None)
        else:
            self.nodes[path] = (data, self.zxid)
        self.history.append((self.zxid, path, data))

    def exists_async(self, path: str) -> Reply:
        self.between(self)
        return Reply(None, zxid=self.zxid)

    def get_children_async(self, path: str, watch: Any, *, include_data: bool) -> Reply:
        self.between(self)
        names = [node.rpartition("/")[2] for node in self.nodes if node.startswith(f"{path}/")]
        return Reply((names, Stat(0, self.folders[path])), zxid=self.zxid)

    def get_async(self, path: str, watch: Any) -> Reply:
        self.between(self)
        if path not in self.nodes:
            return Reply(exception=NoNodeError(), zxid=self.zxid)
        data, at = self.nodes[path]
        return Reply((data, Stat(at)), zxid=self.zxid)


class FakeConnection:
    """Requests are answered in the order they were sent, each before what follows from it."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._asked: list[tuple[Any, Any]] = []

    def request(self, request: Any, then: Any) -> None:
        self._asked.append((request, then))

    def run(self) -> None:
        while self._asked:
            request, then = self._asked.pop(0)
            then(request(self._tree))


def read(tree: Tree) -> tuple[MembershipView, bool]:
    """A view, and whether it was torn."""
    connection, found = FakeConnection(tree), []
    reading = ViewReading(
        connection,  # type: ignore[arg-type]
        paths=PATHS,
        watch=lambda event: None,
        done=lambda reading, view: found.append(view),
    )
    reading.begin("me")
    connection.run()
    (view,) = found
    assert view is not None
    return view, reading.torn


def change(tree: Tree, chance: random.Random) -> None:
    """Some node comes, goes, or says something else; or somebody writes elsewhere."""
    what = chance.random()
    name = chance.choice(NAMES)
    if what < 0.2:
        tree.zxid += 1
    elif what < 0.6:
        node = MemberNode(f"h:{chance.randint(1, 9)}", ())
        tree.write(PATHS.member(name), chance.choice([None, member_bytes(node)]))
    else:
        shard = ShardId("a", chance.randint(0, 2))
        tree.write(PATHS.owner(shard), chance.choice([None, name.encode()]))


@pytest.mark.parametrize("seed", range(200))
def test_every_change_up_to_its_version_is_in_a_view(seed: int) -> None:
    chance = random.Random(seed)

    def between(tree: Tree) -> None:
        while chance.random() < 0.3:
            change(tree, chance)

    tree = Tree()
    for _ in range(10):
        change(tree, chance)
    tree.between = between
    view, torn = read(tree)
    last: dict[str, tuple[int, bytes | None]] = {}
    for at, path, data in tree.history:
        last[path] = (at, data)
    for path, (at, data) in last.items():
        if at <= view.version:  # nothing came after it, so it must be shown
            folder, _, name = path.rpartition("/")
            known = (
                view.members
                if folder == PATHS.members
                else {f"{shard.group}-{shard.number}": who for shard, who in view.owners.items()}
            )
            assert (name in known) == (data is not None), (path, at, view.version, torn)


@pytest.mark.parametrize("seed", range(50))
def test_in_quiet_all_readers_have_the_position_of_the_last_change(seed: int) -> None:
    chance = random.Random(seed)
    tree = Tree()
    for _ in range(20):
        change(tree, chance)
    early, torn = read(tree)
    for _ in range(5):
        tree.zxid += 1  # beats, and other clusters
    late, _ = read(tree)
    assert not torn and early.version == late.version == max(
        at for at, path, data in tree.history if shown(tree, at, path)
    )


def shown(tree: Tree, at: int, path: str) -> bool:
    """Whether this change left a trace: to remove what is not there changes nothing."""
    if path in tree.nodes and tree.nodes[path][1] == at:
        return True
    return at in tree.folders.values()


def test_what_changes_while_it_reads_is_read_again() -> None:
    tree = Tree()
    tree.write(PATHS.member("a"), member_bytes(MemberNode("h:1", ())))

    def between(tree: Tree) -> None:
        tree.between = lambda tree: None
        tree.between = last

    def last(tree: Tree) -> None:
        tree.between = lambda tree: None
        tree.write(PATHS.member("a"), member_bytes(MemberNode("h:2", ())))

    tree.between = between
    view, torn = read(tree)
    assert torn and view.version == 1
    again, torn = read(tree)
    assert not torn and again.version == 2
