"""Checks of a simulated fleet of any kinds: those that hold always, and those at a quiet point.

Turns a world into a `Contradiction` that names the rule, or nothing. After each step they check
only what has changed since the last one: a check that costs more than the step would halve the
number of histories that can be searched. They must not change the world, or a history would depend
on its checks, and take the store's word, not a daemon's.

    checkers = Checkers(world)            before the first step
    checkers.on_frame.append(...)         called with every frame, once, when it is committed
    checkers.on_settled.append(...)       called after those of one round
    checkers.quiet()                      when no fault strikes any more

    always   R3 one committer, R4 frozen prefix, R5 replay identity when an owner first rests,
             R5 no cell under the key of a crowd, no crowd without its parent,
             R17 bounded queues, R18 no turn fails, no shell breaks, no shard is damaged
    quiet    every shard open, at rest and up to date with its journal; R4 all rows read again;
             R5 of all shards, from checkpoint and from nothing; every index equal to its rebuild
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from peloton.runtime.core.entities.codec import Codec, Entry
from peloton.runtime.core.entities.population import Population
from peloton.runtime.core.journal.statements import RegisterRow
from peloton.runtime.core.offline.digest import alike
from peloton.runtime.core.shard import Shard
from peloton.runtime.core.turning.replies import KEYS_PER_CELL_MAX
from peloton.runtime.ports import ShardId
from peloton.runtime.shells.claim import ClaimShell
from peloton.runtime.shells.root import Root, RootShell
from peloton.runtime.shells.shard import ShardShell
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.simulation.scan import CommittedFrame, Contradiction, Maker, Scan
from peloton.runtime.simulation.world import World

CLOSER_FRAMES = 8
"""The expensive checks of a shard (indexes, bounds) are made once in so many frames."""
CLOSER_STEPS = 32
"""All inboxes are counted once in so many steps."""
REST_S_MAX = 120.0
DEATH = "Died"
"""The name of the exception of a simulated death, in the reason of an exit."""


class DecodedFrame(NamedTuple):
    """A committed frame, decoded."""

    shard: ShardId
    position: int
    at: float
    entries: list[Entry]


class Bounds(NamedTuple):
    """R17: the most that may wait; beyond it some queue grows without bound."""

    messages_max: int = 2_000  # in the inbox of one shell
    mail_max: int = 20_000  # in all mailboxes of one shard
    owing_max: int = 20_000  # actors of one shard with owed sends


class Life:
    """The watched state of one process of a daemon."""

    def __init__(self, root: Root, *, shell: RootShell, claim: ClaimShell) -> None:
        self.root = root
        self.shell = shell
        self.claim = claim
        self.trouble = ""  # the last one in its health


def as_it_is(index: Any) -> Any:
    """Return the index itself, whose instances can be compared directly."""
    return index


class Checkers:
    """All checks of one world that know no kind; they run after each of its steps."""

    def __init__(
        self,
        world: World,
        *,
        contents: Callable[[Any], Any] = as_it_is,
        bounds: Bounds = Bounds(),  # noqa: B008
    ) -> None:
        self.scan = Scan(world.store)
        self.on_frame: list[Callable[[DecodedFrame], None]] = []
        self.on_settled: list[Callable[[], None]] = []
        """Called when all frames that were committed in one moment were passed to `on_frame`."""
        self.on_closer: list[Callable[[ShardId, Shard], None]] = []
        """Called with a shard whenever the expensive checks of it are made."""
        self.checked: Counter[str] = Counter()
        """How often each check was made: a check that was never made proves nothing."""
        self.poisoned = False
        """Whether the storm sends messages at which turns raise: failed turns are right then."""
        self._world = world
        self._maker = Maker(world.store, world.kinds, sharding=world.sharding)
        self._contents = contents
        self._bounds = bounds
        self._lives: dict[str, Life] = {}
        self._steps = 0
        self._store_uses = 0
        self._compared: dict[ShardId, int] = {}  # the epoch whose owner was compared
        self._inspected: dict[ShardId, int] = {}  # the position at the last expensive check
        world.checks.append(self._after_step)

    # ---- always ----

    def step(self) -> None:
        """Check what one step may have broken. Raises `Contradiction`."""
        self._steps += 1
        self._poll()
        for daemon in self._world.daemons.values():
            self._daemon(daemon)
            for shard, core in daemon.shards().items():
                self._core(shard, core)

    def _after_step(self) -> None:
        """Check what a step of the world can have changed.

        A core changes in a step of its own shell only, and a register only by a use of the store.
        """
        world = self._world
        if (self._steps + 1) % CLOSER_STEPS == 0:
            self.step()
            return
        self._steps += 1
        moved: list[ShardId] = []
        if world.store.uses != self._store_uses:
            moved = self._poll()
        shell = world.stepper.stepped
        of = world.daemon_of(shell)
        for daemon in (of,) if of is not None else world.daemons.values():
            self._daemon(daemon)
        if of is not None and type(shell) is ShardShell and shell.core is not None:
            self._core(shell.shard, shell.core)
        for daemon in world.daemons.values() if moved else ():
            cores = daemon.shards()
            for shard in moved:
                if shard in cores:
                    self._core(shard, cores[shard])

    def _poll(self) -> list[ShardId]:
        """Check what was committed; return the shards whose registers have changed."""
        self._store_uses = self._world.store.uses
        for shard, committed in self.scan.poll():
            self._committed(shard, committed)
        for call in self.on_settled:
            call()
        return self.scan.moved

    def _committed(self, shard: ShardId, committed: CommittedFrame) -> None:
        self.checked["frame"] += 1
        if self.on_frame:
            at, entries = self._world.codec.decode_frame(committed.body)
            frame = DecodedFrame(shard, committed.position, at, entries)
            for call in self.on_frame:
                call(frame)

    def _daemon(self, daemon: SimulatedDaemon) -> None:
        """Check that no shell breaks and no shard is damaged, which no fault may cause."""
        name, root = daemon.name, daemon.root
        life = self._lives.get(name)
        if root is not (life.root if life is not None else None):
            self._has_ended(name, life)
            self._lives.pop(name, None)
            life = self._begun(daemon)
        if life is None:
            return
        troubles = life.root.region.status.problems
        if life.shell._breaks:
            text = life.trouble or "; ".join(life.root.region.health()[1])
            raise Contradiction(f"R18 {name}: a shell broke: {text}")
        for shard, text in life.claim.handoff.damaged.items():
            self._is_really_damaged(shard, f"{name}: {shard} is damaged: {text}", text=text)
        if troubles:
            life.trouble = "; ".join(f"{shell}: {text}" for shell, text in troubles.items())
        if self._steps % CLOSER_STEPS == 0:
            self._inboxes_are_bounded(daemon)

    def _is_really_damaged(self, shard: ShardId, named: str, *, text: str) -> None:
        """Return whether the damage is real. R4: only a rotten row halts a shard, and is named."""
        rotten = self._world.store.reads.ever.get(shard)
        if rotten is None:
            raise Contradiction(f"R4 {named}")
        numbers = {int(each) for each in re.findall(r"\d+", text)}
        # A frame that is gone behind all others is named by the one before it.
        if not any(at in numbers or at - 1 in numbers for at in rotten):
            raise Contradiction(f"R4 {named}: it does not name any of {rotten}")
        self.checked["damage"] += 1

    def _begun(self, daemon: SimulatedDaemon) -> Life | None:
        """Return the watched state of the daemon's present process; None if it has none."""
        if daemon.root is None or daemon.process is None:
            return None
        shells = daemon.process.shells
        shell = next(each for each in shells if isinstance(each, RootShell))
        claim = next(each for each in shells if isinstance(each, ClaimShell))
        life = self._lives[daemon.name] = Life(daemon.root, shell=shell, claim=claim)
        return life

    def _inboxes_are_bounded(self, daemon: SimulatedDaemon) -> None:
        if daemon.process is None or daemon.process.frozen:
            return  # a frozen process reads nothing
        for shell in daemon.process.shells:
            waiting = shell.actor_inbox.qsize()
            if waiting > self._bounds.messages_max:
                raise Contradiction(f"R17 {daemon.name}: {waiting} messages wait for {shell.name}")

    def _has_ended(self, name: str, life: Life | None) -> None:
        if life is not None and life.root.exited.done():
            reason = life.root.exited.result()
            if DEATH not in reason:
                raise Contradiction(f"R18 {name}: the process ended itself: {reason}")

    def _core(self, shard: ShardId, core: Shard) -> None:
        deferred = core.deferred
        if deferred.retrying or deferred.dead_letters or deferred.quarantined:
            self.no_turn_failed(shard, core)
        newest = self._compared.get(shard, 0)
        is_new = newest < core.epoch == self._register(shard).epoch
        if is_new and self.rests(shard, core) and _has_no_pieces(core):
            # R5 on takeover: the state that the new owner recovered from the journal.
            self._compared[shard] = core.epoch
            self._replays(shard, core)
            self.closer(shard, core)
        elif core.position >= self._inspected.get(shard, 0) + CLOSER_FRAMES:
            self.closer(shard, core)

    def no_turn_failed(self, shard: ShardId, core: Shard) -> None:
        """Check R18: no turn raises."""
        deferred, lines = core.deferred, core.turns.story._lines
        failed = [line for line in lines if "failed:" in line.because]
        stopped = [*deferred.retrying, *deferred.dead_letters, *deferred.quarantined]
        if (failed or stopped) and not self.poisoned:
            texts = [f"{line.key} {line.cause}: {line.because}" for line in failed[:3]]
            raise Contradiction(f"R18 {shard}: a turn failed: {texts or stopped[:3]}")

    def closer(self, shard: ShardId, core: Shard) -> None:
        """Make the checks that are too expensive after every step."""
        self._inspected[shard] = core.position
        self.checked["closer"] += 1
        self.cells_and_crowds_are_apart(shard, core)
        self.indexes_equal_their_rebuild(shard, core)
        self.queues_are_bounded(shard, core)
        self.no_turn_failed(shard, core)
        for call in self.on_closer:
            call(shard, core)

    def cells_and_crowds_are_apart(self, shard: ShardId, core: Shard) -> None:
        """Check R5: no cell under the key of a crowd, no crowd without its parent.

        Otherwise a recovery would find a key without the state it expects.
        """
        live = core.population
        for key in live.cells:
            if live.kind(key).crowd is not None:
                raise Contradiction(f"R5 {shard}: {key} is a cell under the key of a crowd")
        for key in live.crowds:
            crowd_kind = live.kind(key).crowd
            if crowd_kind is None or crowd_kind.parent(key) not in live.cells:
                raise Contradiction(f"R5 {shard}: {key} is a crowd without its parent")

    def indexes_equal_their_rebuild(self, shard: ShardId, core: Shard) -> None:
        """Check that each index is what a rebuild from the children would be."""
        live = core.population
        for key, was, wanted in rebuilt(live, core.codec):
            if self._contents(was) != self._contents(wanted):
                raise Contradiction(f"R5 {shard}: the index of {key} is not its rebuild")

    def queues_are_bounded(self, shard: ShardId, core: Shard) -> None:
        """Check R17: mailboxes, kept answers, change feed, story and owed sends are bounded."""
        boxes = [*core.deferred.loading.values(), *core.deferred.retrying.values()]
        mail = len(core._inbox) + sum(len(box._queue) for box in boxes)
        answers = max((len(kept) for kept in core.request_log.by_cell.values()), default=0)
        for name, count, most in (
            ("envelopes wait", mail, self._bounds.mail_max),
            ("actors owe", len(core.turns.resolver.owed_sends), self._bounds.owing_max),
            ("answers of one cell", answers, KEYS_PER_CELL_MAX),
            ("changes kept", len(core.changes._kept), core.limits.changes_max),
            ("lines of story", len(core.turns.story._lines), core.limits.lines_max),
        ):
            if count > most:
                raise Contradiction(f"R17 {shard}: {count} {name}, at most {most}")

    def rests(self, shard: ShardId, core: Shard) -> bool:
        """Return whether this owner has all that was committed, and nothing to do or to write.

        A claim whose daemon has lost the shard again may have overtaken the owner: see
        `World.whole`.
        """
        waits = core.busy or core.is_open or core.lazy
        return core.position == self._register(shard).last_position and not waits

    def _register(self, shard: ShardId) -> RegisterRow:
        return self._world.store.registers.registers[shard]

    def _replays(self, shard: ShardId, core: Shard) -> None:
        """Check R5: the state in memory is what a recovery from checkpoint and tail would be."""
        self.checked["recovery"] += 1
        if not alike(self._maker.recovered(shard), core):
            text = f"at {core.position} its owner differs from a recovery"
            raise Contradiction(f"R5 {shard}: {text}: {differing(core, self._maker)}")

    # ---- when quiet ----

    def quiet(self, within_s: float = REST_S_MAX) -> None:
        """Wait until all shards are at rest, while no fault strikes; then make all checks."""
        self._world.run_until(self.at_rest, within_s=within_s)
        self.step()
        for shard, core in self._world.shards().items():
            self.closer(shard, core)
            self._replays(shard, core)
            self.checked["replay"] += 1
            if not alike(self._maker.replayed(shard, self.scan.frames[shard]), core):
                raise Contradiction(f"R5 {shard}: a replay of all frames is another state")
            self.checked["row"] += self.scan.reread(shard)
            if core.deferred.loading:
                raise Contradiction(
                    f"R11 {shard}: {[*core.deferred.loading]} are still being loaded"
                )
        self._one_owner_each()

    def at_rest(self) -> bool:
        """Return whether every shard is open, and has nothing to do."""
        world = self._world
        return world.whole() and all(
            self.rests(shard, core) for shard, core in world.shards().items()
        )

    def _one_owner_each(self) -> None:
        """Check R3: an overtaken owner has closed its shard by now."""
        found: dict[ShardId, str] = {}
        for daemon in self._world.daemons.values():
            for shard in daemon.shards():
                other = found.setdefault(shard, daemon.name)
                if other != daemon.name:
                    raise Contradiction(f"R3 {shard}: open at {other} and at {daemon.name}")


def rebuilt(live: Population, codec: Codec) -> list[tuple[str, Any, Any]]:
    """Return each index of a population and its rebuild: (parent, is, should be)."""
    twin = Population(live._kinds, codec)
    twin.cells = live.cells
    twin.rebuild()
    keys = {**live.indexes, **twin.indexes}
    fresh = {key: live.kind(key).index for key in keys}
    return [
        (key, live.indexes.get(key) or made(), twin.indexes.get(key) or made())
        for key, made in fresh.items()
        if made is not None
    ]


def differing(core: Shard, maker: Maker) -> list[str]:
    """Return the entities whose states differ between an owner and a recovery, for the message."""
    other = maker.recovered(core.id)
    here, there = core.population, other.population
    found = [
        str(key)
        for key in sorted({**dict(here.cells.items()), **dict(there.cells.items())})
        if here.cells.peek(key) != there.cells.peek(key)
        or here.since.get(key) != there.since.get(key)
    ]
    for key in sorted({**dict(here.crowds.items()), **dict(there.crowds.items())}):
        one, two = here.crowds.peek(key), there.crowds.peek(key)
        if one is None or two is None or one.classes != two.classes or one.columns != two.columns:
            found.append(str(key))
    return found or ["answers, dead letters or seen epochs"]


def _has_no_pieces(core: Shard) -> bool:
    """Return whether no request waits for more pieces: a recovery would drop it."""
    cells = core.population.cells.items()
    return not any(core.population.kind(key).unfinished(state) for key, state in cells)
