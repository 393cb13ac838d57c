"""What placers hear and say.

A slice wishes, a placer proposes, the host alone grants. All of it is droppable: who wishes asks
again, and no actor must need any of it to stay right. Inventories tell placers about hosts in
numbered deltas, so that a gap is noticed.
"""

from __future__ import annotations

from peloton.actors.resources import Resources
from peloton.runtime.vocabulary import Bits, Key, Message, Value

PLACER_ANY = Key("placer/any")
"""Whichever placer the region picks."""


class Label(Value, frozen=True, gc=False, array_like=True):
    """A key and a value, such as an attribute of a host."""

    key: str
    value: str


class Constraint(Value, frozen=True, gc=False, array_like=True):
    """A hard condition on a host. A leaf compares a count; `and` and `or` hold others.

    `kind`: "host" counts the host's labels, "task" the labels of tasks on it. `condition` is one
    of "less", "equal", "greater" against `requirement`.
    """

    form: str  # "label" | "and" | "or"
    kind: str = ""
    label: Label = Label("", "")
    condition: str = ""
    requirement: int = 0
    members: tuple[Constraint, ...] = ()


class Shape(Value, frozen=True, gc=False, array_like=True):
    """What one task needs of a host: equal shapes are placed together."""

    resources: Resources
    ports: int = 0  # dynamic ports
    constraint: Constraint | None = None
    strategy: str = "pack"
    labels: tuple[Label, ...] = ()  # of the task, for constraints of kind "task"


class HostSummary(Value, frozen=True, gc=False, array_like=True):
    """A host as its inventory last saw it; `position` orders the summaries of one host."""

    host: Key
    position: int
    capacity: Resources
    free: Resources
    labels: tuple[Label, ...] = ()
    up: bool = True
    ports: int = 0  # free ports
    running: tuple[tuple[Label, int], ...] | None = None
    """Labels of the tasks on it, counted; None where the inventory does not tell. Without them
    a constraint of kind "task" cannot be judged, and the host is refused for that reason."""
    launches: int = 0
    """How many launches the host has decided so far, accepted or refused. It never falls, so a
    placer sees by it that what it proposed has arrived there."""


class HostDeltas(Message, frozen=True, gc=False, array_like=True):
    """Inventory to placers: hosts that changed, or all of them (`snapshot`).

    `sequence` rises by one per message of an inventory; a placer that misses one asks for a
    snapshot, and trusts no host of that inventory less or more meanwhile.
    """

    inventory: Key
    sequence: int
    hosts: tuple[HostSummary, ...]
    snapshot: bool = False
    gone: tuple[Key, ...] = ()  # hosts that were deleted; a snapshot drops whom it does not name


class SnapshotWanted(Message, frozen=True, gc=False, array_like=True):
    """Placer to inventory: tell me all your hosts."""

    placer: Key


class Wish(Message, frozen=True, gc=False, array_like=True):
    """Slice to placer: hosts for these members, all of one shape.

    `number` names the wish and comes back with the answer. `refused` are hosts that have just
    refused a member of this slice, with their room as of that refusal: fresher than any delta.
    """

    slice: Key
    number: int
    members: Bits
    shape: Shape
    refused: tuple[HostSummary, ...] = ()


class Placed(Message, frozen=True, gc=False, array_like=True):
    """Placer to slice: one host for each of `members`, ascending."""

    number: int
    members: Bits
    hosts: tuple[Key, ...]


class Unplaced(Message, frozen=True, gc=False, array_like=True):
    """Placer to slice: no host for these; `reasons` counts hosts by why not. The count is soft.

    `text` says it for people, with what is lacking and by how much. `never`: no host could do it
    even if it were empty, so waiting alone will not help.
    """

    number: int
    members: Bits
    reasons: tuple[tuple[str, int], ...]
    text: str = ""
    never: bool = False


PLACER_MESSAGES: dict[int, type] = {1: Wish, 2: HostDeltas}
"""What placers hear, by the numbers under which it travels to those of other daemons."""
