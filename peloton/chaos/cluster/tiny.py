"""The limits that storms make tiny, one by one, and how a check sees that one was met.

Turns a seed into limits by name, names into the values that a daemon, its kinds or the rows of its
store get, and counters into "it was hit". A large limit is never reached in a simulated history, so
its handling would never be tested. A limit that can be passed in must not be patched: daemons of
one world may have different ones.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from peloton.actors.job.kind import FINISHED_JOBS_MAX
from peloton.runtime.core.ended.gathering import GATHERED_MIN
from peloton.runtime.core.journal import register, segments
from peloton.runtime.core.journal.segments import SEGMENT_FRAMES
from peloton.runtime.core.links.parcels import Link
from peloton.runtime.core.shard import Shard
from peloton.runtime.ports import FRAME_PART_BYTES_MAX
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.shells.ephemeral import EphemeralShell
from peloton.runtime.shells.peer import PeerShell
from peloton.runtime.shells.round import RoundShell
from peloton.runtime.shells.shard import ShardShell
from peloton.runtime.shells.shell import Shell
from peloton.runtime.simulation.scenario import some_of

Number = int | float


class Tiny(NamedTuple):
    """A limit: its tiny values, what happens at it, and whether that has happened."""

    values: tuple[Number, ...]
    what: str
    hit: Callable[..., object] = lambda where: False


SHARDS: dict[str, Tiny] = {
    "part_bytes": Tiny((100, 1_000), "a checkpoint has several parts",
                       lambda core: core.checkpointer.counts["parts"]),
    "piece_bytes_max": Tiny((50, 300), "a value is split to fit a checkpoint's part",
                            lambda core: core.checkpointer.counts["pieces"]),
    "frame_bytes_soft": Tiny((1, 200, 2_000), "a frame takes no more bytes",
                             lambda core: core.pump.counts["full"]),
    "turns_per_frame_max": Tiny((1, 2, 4), "a frame takes no more turns",
                                lambda core: core.pump.counts["spent"]),
    "commands_max": Tiny((1, 2, 4), "a full mailbox refuses a command",
                         lambda core: core.deferred.full),
    "ended_rows_per_round": Tiny((1, 2, 3), "final states wait for the next round",
                                 lambda core: core.endings.full),
    "ended_rows_gathered": Tiny((2, 5), "ended entities wait for each other",
                                lambda core: len(core.endings.waiting)),
    "redriven_per_frame_max": Tiny((1,), "a redrive takes several frames",
                                   lambda core: core.redrives.waited),
    "changes_max": Tiny((1, 8), "the change feed drops old changes",
                        lambda core: core.changes.dropped),
    "lines_max": Tiny((100,), "a story drops its oldest lines",
                      lambda core: len(core.turns.story._lines) >= core.limits.lines_max),
    "cold_after_s": Tiny((0.2, 1.0, 5.0), "an idle entity is packed",
                         lambda core: core.population.cells.cold or core.population.crowds.cold),
    "cold_per_check_max": Tiny((1, 2), "more are idle than one pass packs",
                              lambda core: core.idleness.full),
}  # fmt: skip
"""Limits of a shard, counted by its core. The sends within a shard have none: what a parent sends
to its children belongs into the same frame."""
SHELLS: dict[str, Tiny] = {
    "waiting_mail_max": Tiny((0, 1, 3), "a recovering shard takes no more mail",
                             lambda shell: isinstance(shell, ShardShell) and shell.refused),
    "service_mail_max": Tiny((0, 2), "orders are dropped while the session is in doubt",
                          lambda shell: isinstance(shell, EphemeralShell) and shell.dropped),
    "batch_bytes": Tiny((1, 500), "the mail for one route takes several batches",
                         lambda shell: isinstance(shell, PeerShell) and shell.counts["split"]),
    "round_passes_max": Tiny((1, 2, 4), "a round is closed while others have mail",
                             lambda shell: isinstance(shell, RoundShell) and shell.cut_short),
}  # fmt: skip
LINKS: dict[str, Tiny] = {
    "parcel_bytes": Tiny((1, 1_000), "batches take several parcels",
                         lambda link: link.counts["split"]),
    "window_parcels": Tiny((1, 2), "a window is full", lambda link: link.counts["waits"]),
    "window_bytes": Tiny((1, 1_000), "a window is full", lambda link: link.counts["waits"]),
    "link_bytes_max": Tiny((3_000, 10_000), "a batch does not fit into the queue of a link",
                           lambda link: link.counts["dropped"]),
}  # fmt: skip
STORE: dict[str, Tiny] = {
    "finished_jobs_max": Tiny((0, 1, 3), "a finished job leaves the memory"),
    "segment_frames": Tiny((1, 2, 8), "a segment is cut"),
    "frame_part_bytes_max": Tiny((40, 200), "a frame takes several rows"),
}
"""Limits that are seen in the statements to the store."""
ALL_TINY = {**SHARDS, **SHELLS, **LINKS, **STORE}
DRAWN_APART = ("round_passes_max",)
DRAWN_ALONE = ("ended_rows_gathered",)
"""Both were added later: older seeds keep the other limits that they had."""
USUAL_NUMBERS: dict[str, Number] = {
    **{name: getattr(DaemonLimits(), name) for name in (*SHARDS, *SHELLS, *LINKS)},
    "ended_rows_gathered": GATHERED_MIN,  # on Cassandra
    "finished_jobs_max": FINISHED_JOBS_MAX,
    "segment_frames": SEGMENT_FRAMES,
    "frame_part_bytes_max": FRAME_PART_BYTES_MAX,
}
ALONE_SHARE = 0.3
COLD_LOOK_S = 0.5
"""In s: entities that are packed early are searched for often."""


class ByPlace(NamedTuple):
    """The limits by the place where it shows that they are met."""

    shards: dict[str, Number]
    shells: dict[str, Number]  # and their links


def by_place(drawn: Mapping[str, Number]) -> ByPlace:
    """Return the limits that shards and shells can meet."""
    return ByPlace(
        {name: value for name, value in drawn.items() if name in SHARDS},
        {name: value for name, value in drawn.items() if name in SHELLS or name in LINKS},
    )


def drawn(seed: int) -> dict[str, Number]:
    """Draw tiny limits, by generators of their own: faults stay as drawn."""
    chance = random.Random(f"{seed} limits")
    found: dict[str, Number] = {}
    if chance.random() >= 0.5:
        later = (*DRAWN_APART, *DRAWN_ALONE)
        names = some_of(chance, [name for name in ALL_TINY if name not in later])
        found = {name: chance.choice(ALL_TINY[name].values) for name in names}
    more = random.Random(f"{seed} more limits")
    apart = [name for name in DRAWN_APART if more.random() < 0.5]
    found |= {name: more.choice(ALL_TINY[name].values) for name in apart}
    for name in DRAWN_ALONE:
        alone = random.Random(f"{seed} {name}")
        if alone.random() < ALONE_SHARE:
            found[name] = alone.choice(ALL_TINY[name].values)
    return found


def limits(drawn: Mapping[str, Number], *, checkpoint_bytes_min: int) -> DaemonLimits:
    """Return the limits of a daemon."""
    own: dict[str, Any] = {name: value for name, value in drawn.items() if name not in STORE}
    if "cold_after_s" in own or "cold_per_check_max" in own:
        own = {"cold_after_s": 1.0, **own, "cold_check_s": COLD_LOOK_S}
    return DaemonLimits(checkpoint_bytes_min=checkpoint_bytes_min, **own)


@contextlib.contextmanager
def rows(drawn: Mapping[str, Number]) -> Iterator[None]:
    """Set how frames are split into segments and rows, while one world is played.

    All readers of a store have to agree on these numbers, so they are constants of the program and
    cannot be passed to a daemon; here the constants are changed.
    """
    segment, part = drawn.get("segment_frames"), drawn.get("frame_part_bytes_max")
    before = [
        (segments, "SEGMENT_FRAMES", segment),
        (register, "FRAME_PART_BYTES_MAX", part),
    ]
    usual = [(module, name, getattr(module, name)) for module, name, _ in before]
    for module, name, value in before:
        if value is not None:
            setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, was in usual:
            setattr(module, name, was)


def hit_in_shard(core: Shard, names: Mapping[str, Number]) -> Iterator[str]:
    """Yield which of these limits a shard has met."""
    yield from (name for name in names if name in SHARDS and SHARDS[name].hit(core))


def hit_in_shell(shell: Shell, names: Mapping[str, Number]) -> Iterator[str]:
    """Yield which of these limits a shell, or one of its links, has met."""
    yield from (name for name in names if name in SHELLS and SHELLS[name].hit(shell))
    links: list[Link] = [*shell.links.values()] if isinstance(shell, PeerShell) else []
    yield from (
        name for name in names if name in LINKS and any(LINKS[name].hit(link) for link in links)
    )
