"""The entities of a shard: cells, crowds, and the indexes that parents derive from them.

A new state of an entity updates the index of its parent in the same turn, so a tally or a pool's
use always equals the sum of the children. An index is never encoded; `rebuild` derives it from the
children.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.entities.crowd import Crowd
from peloton.runtime.core.entities.passivation import EntityCache
from peloton.runtime.kinds import Kind, no_parent
from peloton.runtime.vocabulary import Key, kind_of


class Population:
    """States by key. A crowd is found by its own key, its parent's cell by the parent's."""

    def __init__(self, kinds: Mapping[str, Kind], codec: Codec | None = None) -> None:
        self._kinds = kinds
        self._codec = codec if codec is not None else Codec(kinds)
        self.cells = EntityCache(self._pack_cell, self._unpack_cell)
        self.since: dict[Key, float] = {}  # when the present deadline of a cell began
        self.crowds = EntityCache(self._pack_crowd, self._unpack_crowd)
        self.indexes: dict[Key, Any] = {}
        self.notes: dict[Key, Any] = {}  # of cells; lost on restart
        self.cut_crowds: dict[Key, Crowd] = {}  # of a checkpoint that is being encoded
        self.dirty: dict[Key, None] = {}  # parents to pursue, in the order their children changed

    def kind(self, key: Key) -> Kind:
        return self._kinds[kind_of(key)]

    def index_for(self, kind: Kind, key: Key) -> Any:
        """Return the index that a turn of `key` sees: its crowd, or the index of its parent."""
        if kind.follows is not None:
            return self.crowd(kind.follows(key))
        if kind.parent is no_parent:
            return self.index_of(key) if kind.index is not None else None
        parent = kind.parent(key, self.cells.peek(key))
        # A cell without a parent is a root, and sees its own index, as all below it do.
        return self.index_of(key if parent is None else parent)

    def index_key(self, key: Key) -> Key:
        """Return the key of the index that the entity sees."""
        kind = self.kind(key)
        if kind.follows is not None:
            return kind.follows(key)
        parent = kind.parent(key, self.cells.peek(key))
        return key if parent is None else parent

    def index_of(self, parent: Key) -> Any:
        """Return the index of a parent, made at first use; None for kinds without one."""
        index = self.indexes.get(parent)
        if index is None:
            make = self.kind(parent).index
            if make is None:
                return None
            index = self.indexes[parent] = make()
        return index

    def crowd(self, key: Key) -> Crowd:
        """Return the crowd of that key; an empty one if there is none."""
        # Straight at those in memory first: each turn of a parent asks several times.
        found: Crowd | None = self.crowds.warm.get(key) or self.crowds.get(key)
        return found if found is not None else Crowd(self.kind(key), key)

    def put(self, key: Key, new: Any, *, kind: Kind | None = None) -> None:
        """Set the state of a cell; None deletes it."""
        kind = kind if kind is not None else self.kind(key)
        if kind.index is not None or kind.parent is not no_parent:
            # First: if the index raises, the cell must stay as it was.
            self._follow(kind, key, old=self.cells.get(key), new=new)
        if new is None:
            self.cells.pop(key, None)
            self.since.pop(key, None)
            self.indexes.pop(key, None)
            self.notes.pop(key, None)
        else:
            self.cells[key] = new

    def before_change(self, crowd: Crowd) -> None:
        """Copy the crowd if a checkpoint that was cut has yet to encode it as it is now."""
        if self.cut_crowds.get(crowd.key) is crowd:
            self.cut_crowds[crowd.key] = crowd.copy()

    def changed(self, crowd: Crowd) -> Key:
        """Note that members of a crowd have new states; return the key of their parent."""
        if crowd.classes:
            self.crowds[crowd.key] = crowd
        else:
            self.crowds.pop(crowd.key, None)
        parent = crowd.parent
        self.dirty[parent] = None
        return parent

    def rebuild(self) -> None:
        """Derive all indexes anew from the states.

        Indexes that have a `rebuilt` are called: what follows from all states is no single turn's
        work.
        """
        self.indexes, self.dirty = {}, {}
        for key, state in self.cells.items():
            self._follow(self.kind(key), key, old=None, new=state)
        for index in self.indexes.values():
            rebuilt = getattr(index, "rebuilt", None)
            if rebuilt is not None:
                rebuilt()
        for key in self.cells:
            if self.kind(key).index is not None or self.kind(key).follows is not None:
                self.dirty[key] = None

    def freeze(self, key: Key) -> None:
        """Pack an idle entity, with its crowd."""
        kind = self.kind(key)
        self.cells.freeze(key)
        if kind.follows is not None:
            self.crowds.freeze(kind.follows(key))

    def woken(self) -> list[Key]:
        """Return the cells that were read while cold, or whose crowd was, since the last call."""
        if not (self.cells.woken or self.crowds.woken):
            return []
        keys = [*self.cells.woken]
        for key in self.crowds.woken:
            crowd_kind = self.kind(key).crowd
            assert crowd_kind is not None
            keys.append(crowd_kind.parent(key))
        self.cells.woken, self.crowds.woken = {}, {}
        return keys

    def drop(self, key: Key) -> None:
        """Remove an ended entity from memory, with its crowd."""
        kind = self.kind(key)
        self.put(key, None)
        if kind.follows is not None:
            self.crowds.pop(kind.follows(key), None)
        self.dirty.pop(key, None)

    def _pack_cell(self, key: Key, state: Any) -> bytes:
        return self._codec.encode_cell(key, state, since=self.since.get(key, 0.0))

    def _unpack_cell(self, body: bytes) -> Any:
        return self._codec.decode_entity(body)[1][0]

    def _pack_crowd(self, key: Key, crowd: Crowd) -> bytes:
        return self._codec.encode_crowd(crowd)

    def _unpack_crowd(self, body: bytes) -> Crowd:
        crowd: Crowd = self._codec.decode_entity(body)[1]
        crowd.rebuild_deadlines()
        return crowd

    def _follow(self, kind: Kind, key: Key, *, old: Any, new: Any) -> None:
        if kind.index is not None:
            self.dirty[key] = None
        if kind.parent is no_parent:
            return
        parent = kind.parent(key, new if new is not None else old)
        if parent is None:
            return
        index = self.index_of(parent)
        if index is not None:
            index.put(key, old=old, new=new)
            self.dirty[parent] = None
