"""Messages that placers receive and send.

Slices send wishes, placers propose hosts, and only hosts grant resources. All messages may be lost:
slices repeat their wishes, and no actor may depend on a message of a placer for correctness.
Inventories report hosts to placers in numbered deltas, so that a gap is noticed.
"""

from __future__ import annotations

from peloton.actors.resources import Resources
from peloton.runtime.vocabulary import Bits, Key, Message, Value

PLACER_ANY = Key("placer/any")
"""Whichever placer the region picks."""


JOB_LABEL = "peloton.job_id"
"""The key of the label by which instances of one job are kept apart."""
PORT_LABEL = "peloton/port"
"""The key of the label that a run has for each of its fixed ports."""


class Label(Value, frozen=True, gc=False, array_like=True, order=True):
    """A key and a value, such as an attribute of a host."""

    key: str
    value: str


DAEMON_LABEL = Label("peloton/daemon", "true")
"""That of the instances of daemon jobs, which are the last to end on a host that drains."""


def port_label(number: int) -> Label:
    """Return the label of a run that has this fixed port."""
    return Label(PORT_LABEL, str(number))


class Constraint(Value, frozen=True, gc=False, array_like=True):
    """A hard condition on a host. A leaf compares a count; `and` and `or` combine `members`.

    `kind`: "host" counts the host's labels, "task" the labels of the tasks on it. `condition` is
    "less", "equal" or "greater", compared with `requirement`.
    """

    form: str  # "label" | "and" | "or"
    kind: str = ""
    label: Label = Label("", "")
    condition: str = ""
    requirement: int = 0
    members: tuple[Constraint, ...] = ()


class Shape(Value, frozen=True, gc=False, array_like=True):
    """What one task needs of a host; members of equal shapes are placed together.

    `apart` is a label of the task: hosts with the fewest tasks of it come first, and each gets one
    before any gets another. Strategy "spread" without it regards the tasks of one wish only.
    """

    resources: Resources
    ports: int = 0  # dynamic ports
    constraint: Constraint | None = None
    strategy: str = "pack"
    labels: tuple[Label, ...] = ()  # of the task, for constraints of kind "task"
    apart: Label | None = None
    fixed_ports: tuple[int, ...] = ()

    @property
    def all_labels(self) -> tuple[Label, ...]:
        """Return the labels by which other shapes recognise that such a task is on a host."""
        return (*self.labels, *map(port_label, self.fixed_ports))


class ReservedRoom(Value, frozen=True, gc=False, array_like=True):
    """What a host has for the tasks that it is held for, and these tasks.

    Each task is named by its crowd and its member number.
    """

    room: Resources
    ports: int
    tasks: tuple[tuple[Key, int], ...]


class HostSummary(Value, frozen=True, gc=False, array_like=True):
    """A host as its inventory knows it.

    `position` orders the summaries of one host.
    """

    host: Key
    position: int
    capacity: Resources
    free: Resources
    labels: tuple[Label, ...] = ()
    up: bool = True
    ports: int = 0  # free ports
    running: tuple[tuple[Label, int], ...] | None = None
    """Labels of the tasks on it, counted and sorted; None if the inventory does not report them, or
    they are too many. Then a constraint of kind "task" cannot be evaluated, and the host is
    rejected for that reason."""
    launches: int = 0
    """How many launches the host has decided so far, accepted or refused. It never falls; by it a
    placer knows that its proposals have arrived."""
    quarantined: bool = False
    """Suspected of failing whatever runs on it: left out, or used last (see `quarantines`)."""
    reserved: ReservedRoom | None = None
    """Room that is held for these tasks alone, and is none of `free`."""


class HostDeltas(Message, frozen=True, gc=False, array_like=True):
    """Inventory to placers: hosts that changed, or all of them (`snapshot`).

    `sequence` rises by one per message of an inventory; a placer that misses one requests a
    snapshot, and meanwhile goes on with what it knows.
    """

    inventory: Key
    sequence: int
    hosts: tuple[HostSummary, ...]
    snapshot: bool = False
    gone: tuple[Key, ...] = ()  # hosts that were deleted; a snapshot drops those it does not name


class SnapshotWanted(Message, frozen=True, gc=False, array_like=True):
    """Placer to inventory: send a snapshot of all hosts."""

    placer: Key


class Wish(Message, frozen=True, gc=False, array_like=True):
    """Slice to placer: find hosts for these members, all of one shape.

    `number` identifies the wish in the answer. `refused` are hosts that have just refused a member
    of this slice, with what they had free at that time: newer than any delta. Of the wishes that a
    placer keeps, those of higher `priority` are tried first. `avoid`: hosts where a run of this
    slice did not start; they are used last. `hosts`: the only host of each member, if each may run
    on one alone.
    """

    slice: Key
    number: int
    members: Bits
    shape: Shape
    refused: tuple[HostSummary, ...] = ()
    priority: int = 0
    avoid: tuple[Key, ...] = ()
    hosts: tuple[Key, ...] = ()


class Placed(Message, frozen=True, gc=False, array_like=True):
    """Placer to slice: one host for each of `members`, ascending.

    `shape` is the placer's own number of their shape, which `Declined` returns. `shares`: how many
    tasks with the label `apart` of the shape each of these hosts may have already.
    """

    number: int
    members: Bits
    hosts: tuple[Key, ...]
    shape: int = 0
    shares: int = 0


class GangPart(Value, frozen=True, gc=False, array_like=True):
    """Members of a gang that are alike."""

    members: Bits
    shape: Shape


class GangWish(Message, frozen=True, gc=False, array_like=True):
    """Slice to placer: find hosts for all of these members, or for none.

    The fields are those of a `Wish`. The placer keeps the wish until there is room for all; no room
    is kept free for it meanwhile.
    """

    slice: Key
    number: int
    parts: tuple[GangPart, ...]
    refused: tuple[HostSummary, ...] = ()
    priority: int = 0
    avoid: tuple[Key, ...] = ()


class GangPlaced(Message, frozen=True, gc=False, array_like=True):
    """Placer to slice: one host for each member of the gang.

    Each member is in one part only.
    """

    number: int
    parts: tuple[Placed, ...]


class Declined(Message, frozen=True, gc=False, array_like=True):
    """Slice to placer: these proposals are not used, and of the kept members only `wanted` are
    still wanted.

    Without this message the placer would count the resources as taken until the proposals are old.
    """

    slice: Key
    wanted: Bits
    hosts: tuple[Key, ...] = ()
    shape: int = 0


NOT_UP = "is not up"
"""How the text about the only host of a member ends that is down."""


class Unplaced(Message, frozen=True, gc=False, array_like=True):
    """Placer to slice: there is no host for these members.

    `reasons` counts hosts by the reason, approximately. `text` explains it for people, with what is
    missing. `never`: no host could run the members even if it were empty, so waiting alone does not
    help. `kept`: the placer keeps the wish, and sends `Placed` by itself once there is a host.
    `reserve`: members that have waited for long, each with the host that is to grant nothing to
    others until it has room for the member.
    """

    number: int
    members: Bits
    reasons: tuple[tuple[str, int], ...]
    text: str = ""
    never: bool = False
    kept: bool = False
    reserve: tuple[tuple[int, Key], ...] = ()


class LaunchesStopped(Message, frozen=True, gc=False, array_like=True):
    """Daemon to its own placer: propose no hosts, and give `text` as the reason.

    With an empty text hosts are proposed again.
    """

    text: str


class AskRoom(Message, frozen=True, gc=False, array_like=True):
    """Slice to placer: what do these hosts have free, for an order of a lot?

    The answer is `RoomFound`. It returns lot and number, since orders of several lots may have the
    same number.
    """

    slice: Key
    lot: Key
    number: int
    hosts: tuple[Key, ...]


class RoomFound(Message, frozen=True, gc=False, array_like=True):
    """Placer to slice: what each of the hosts has free, or None if it takes no more tasks."""

    lot: Key
    number: int
    hosts: tuple[Key, ...]
    free: tuple[Resources | None, ...]


class AskGangRoom(Message, frozen=True, gc=False, array_like=True):
    """Slice to placer, for `asker`: would all members have hosts if each of `hosts` had `rooms`
    more free?

    The answer `GangRoomFound` goes to the asker.
    """

    asker: Key
    number: int
    parts: tuple[GangPart, ...]
    hosts: tuple[Key, ...]
    rooms: tuple[Resources, ...]


class GangRoomFound(Message, frozen=True, gc=False, array_like=True):
    """Placer to the asker: whether all members would have hosts, and on which hosts.

    `lack`: by how much each of the hosts in question has too little free for its members until
    then; nothing where they fit on what is free.
    """

    number: int
    fits: bool
    hosts: tuple[Key, ...] = ()
    lack: tuple[Resources, ...] = ()


PLACER_MESSAGES: dict[int, type] = {
    1: Wish,
    2: HostDeltas,
    3: Declined,
    4: AskRoom,
    5: GangWish,
    51: LaunchesStopped,
    76: AskGangRoom,
}
"""What placers receive, by the numbers that are used between daemons."""
