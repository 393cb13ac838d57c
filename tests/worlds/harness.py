"""A cluster in one object: real shards of all kinds, the real placer, machines of a script.

Turns a seed and a workload into one history in virtual time, with crashes at any frame and a
network that loses, repeats and delays. After every step it checks what must always be true
(`checks.py`). It must not reach into actors: it speaks to them, and looks at what they committed.

    world = World(hosts=3)
    pool = world.make_pool()
    job = world.create(JobSpec(...))
    world.run_until(lambda: world.job(job).summary.state == JobStates.SUCCEEDED)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from peloton.actors.host import messages as host_messages
from peloton.actors.host.inventory.messages import OpenInventory, inventory_key
from peloton.actors.job.messages import CreateJob, GetJob, JobView, job_key
from peloton.actors.job.slice.messages import InstanceView, ListInstances, slice_key, slices_of
from peloton.actors.job.spec import Command, JobSpec, Override, TaskConfig
from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.messages import ROOT, CreatePool, OpenRoot, PoolConfig, pool_key
from peloton.chaos.cluster.machines import Fate, Machines, RunFates
from peloton.kinds import kinds
from peloton.placement.messages import PLACER_ANY
from peloton.placement.placer import Placer
from peloton.runtime.core.checkpoint import Checkpointer
from peloton.runtime.core.codec import Codec
from peloton.runtime.core.envelope import Envelope
from peloton.runtime.core.recovery import restore
from peloton.runtime.core.shard import Ready, Shard
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.ports import CheckpointPart, EndedRow, Frame, ShardId
from peloton.runtime.vocabulary import Key, Kind, Message, Query, kind_of
from tests.worlds import checks
from tests.worlds.network import CALM, Network, Storm

SMALL = {"jobmgr": 2, "resmgr": 1, "hostmgr": 2}
BACKEND = Key("backend/script")
STEPS_MAX = 400_000
RETRY_S = 2.0
ROOM = Resources(4 * UNIT, 4096 * UNIT, 4096 * UNIT, 0)
NEED = Resources(UNIT, UNIT, 0, 0)


class NotReached(AssertionError):
    """The world came to rest, or to its time limit, and what was awaited is not so."""


class Disk(NamedTuple):
    """What is safe of one shard."""

    frames: list[Frame]
    ended: dict[str, EndedRow]
    parts: list[CheckpointPart]
    floor: list[int]


class Order:
    """A command that its client repeats until it is answered."""

    def __init__(self, to: Key, message: Message) -> None:
        self.to = to
        self.message = message
        self.answer: Any = None
        self.again_at = 0.0


class World:
    """The cluster. `check` is called after every step; a world for figures may do without."""

    kinds_of: Callable[[Mapping[str, int]], dict[str, Kind]] = staticmethod(kinds)

    def __init__(
        self,
        hosts: int = 3,
        room: Resources = ROOM,
        *,
        seed: int = 0,
        sizes: Mapping[str, int] = SMALL,
        fates: RunFates = lambda run: Fate(),
    ) -> None:
        self.kinds = self.kinds_of(sizes)
        self.codec = Codec(self.kinds)
        self.sharding = Sharding(self.kinds, sizes)
        self.now = 1000.0
        self.network = Network(seed)
        self.chance = self.network.chance
        self.machines = Machines(fates)
        self.disks = {
            ShardId(group, number): Disk([], {}, [], [0])
            for group, size in sizes.items()
            for number in range(size)
        }
        self.check: Callable[[World], None] = checks.always
        self.epochs = dict.fromkeys(self.disks, 1)
        self.shards = {shard: self._empty(shard) for shard in self.disks}
        self.crashes = 0
        self.checkpoint_bytes_min: int | None = None
        self.inventories = [inventory_key(number) for number in range(sizes["hostmgr"])]
        self.placers = [self._placer(0)]
        self._wishes = 0
        self.hosts = [Key(f"host/h{number}") for number in range(hosts)]
        self.room = room
        self.orders: list[Order] = []
        self._replies: dict[Any, Any] = {}
        self._accepted: dict[str, Key] = {}  # run → the one host that may ever accept it
        self._open(room)

    # ---- what a test says ----

    def tell(self, to: Key, message: Message) -> None:
        """A word from outside, which arrives."""
        self.shards[self.sharding.shard_of(to)].take([Envelope(to, message)])

    def ask(self, to: Key, message: Message | Query) -> Any:
        """A command or a question in a calm: its answer, once it is safe."""
        token = object()
        envelope = Envelope(to, message, reply_to=token)  # type: ignore[arg-type]
        self.shards[self.sharding.shard_of(to)].take([envelope])
        self.run_until(lambda: token in self._replies, within_s=60.0)
        return self._replies.pop(token)

    def order(self, to: Key, message: Message) -> Order:
        """A command that is said until it is answered, whatever happens meanwhile."""
        order = Order(to, message)
        self.orders.append(order)
        return order

    def make_pool(self, name: str = "p", limit: Resources | None = None) -> Key:
        """A pool below the root, by default one that may use the whole cluster."""
        pool = pool_key(name)
        most = limit if limit is not None else self.room.times(len(self.hosts))
        config = PoolConfig(name, ROOT, Resources(), most)
        answer = self.ask(pool, CreatePool(config))
        assert getattr(answer, "pool", None) == pool, answer
        return pool

    def create(
        self, spec: JobSpec, name: str = "j", *, overrides: tuple[Override, ...] = ()
    ) -> Key:
        """A job, acknowledged."""
        job = job_id(name)
        by_slice: dict[int, list[Override]] = {}
        for override in overrides:
            by_slice.setdefault(override.instance // 1000, []).append(override)
        pieces = tuple((number, tuple(some)) for number, some in by_slice.items())
        answer = self.ask(job, CreateJob(spec, pieces))
        assert getattr(answer, "job", None) == job, answer
        return job

    def job(self, job: Key) -> JobView:
        """The job as clients see it."""
        view: JobView = self.ask(job, GetJob())
        return view

    def instances(self, job: Key, count: int) -> list[InstanceView]:
        """All instances as clients see them."""
        found: list[InstanceView] = []
        for number in range(slices_of(count)):
            part = self.ask(slice_key(job.partition("/")[2], number), ListInstances(0, count))
            found += part if isinstance(part, tuple) else ()
        return found

    def cells(self, kind: str) -> dict[Key, Any]:
        """Every state of one kind that is in memory, wherever."""
        return {
            key: state
            for shard in self.shards.values()
            for key, state in shard.population.cells.items()
            if kind_of(key) == kind
        }

    def crowds(self) -> dict[Key, Any]:
        """Every crowd of tasks that is in memory."""
        return {k: c for shard in self.shards.values() for k, c in shard.population.crowds.items()}

    # ---- time ----

    def run_until(
        self, reached: Callable[[], bool], *, within_s: float = 600.0, storm: Storm | None = None
    ) -> None:
        """Step until it is so; fails when it is not within that much virtual time."""
        if storm is not None:
            self.network.storm = storm
        end = self.now + within_s
        for _ in range(STEPS_MAX):
            if reached():
                return
            if not self.step(end):
                break
        if not reached():
            raise NotReached(f"not reached at {self.now:g}\n{checks.story(self)}")

    def run_for(self, seconds: float, *, storm: Storm = CALM) -> None:
        """Let time pass."""
        self.network.storm = storm
        end = self.now + seconds
        while self.step(end):
            pass
        self.now = end

    def settle(self) -> None:
        """Run, at this very moment, until nobody has anything to do."""
        while self.step(self.now):
            pass

    def step(self, end: float) -> bool:
        """One round of whatever is next; False when that lies beyond `end`."""
        busy = self._deliver()
        for shard in self._in_some_order():
            busy = self._pump(shard) or busy
        if busy:
            self.check(self)
            return True
        at = self._next()
        if at is None or at > end:
            return False
        self.now = max(self.now, at)
        return True

    # ---- faults ----

    def crash(self, shard: ShardId) -> None:
        """The shard's daemon dies; another one takes over at once, from what is safe.

        No backend is told: hosts compare their ledgers by themselves.
        """
        self.crashes += 1
        self.epochs[shard] += 1
        self.shards[shard] = self.recovered(shard)

    def cut(self, host: Key) -> None:
        """A machine cannot be asked any more; what runs on it runs on."""
        self.machines.cut_off[host] = None
        self.tell(host, host_messages.BackendDown("out of reach"))

    def mend(self, host: Key) -> None:
        """The machine can be asked again."""
        self.machines.cut_off.pop(host, None)
        self.tell(host, host_messages.BackendUp())

    def recovered(self, shard: ShardId) -> Shard:
        """A shard made of what is safe."""
        disk, found = self.disks[shard], self._empty(shard)
        floor = disk.floor[0]
        parts = [part.body for part in disk.parts if part.position == floor]
        tail = [frame for frame in disk.frames if frame.position > floor]
        restore(found, parts, frames=tail, floor=floor)
        return found

    # ---- inside ----

    def _open(self, room: Resources) -> None:
        for inventory in self.inventories:
            self.tell(inventory, OpenInventory())
        self.tell(ROOT, OpenRoot())
        for host in self.hosts:
            self.tell(host, host_messages.ConfigureHost(room, (), BACKEND))
            self.tell(host, host_messages.BackendUp())
        self.run_for(0.1)

    def _empty(self, shard: ShardId) -> Shard:
        found = Shard(shard, self.kinds, sharding=self.sharding, codec=self.codec)
        found.epoch = self.epochs[shard]
        bytes_min = getattr(self, "checkpoint_bytes_min", None)
        if bytes_min is not None:
            found.checkpointer = Checkpointer(self.codec, bytes_min)
        return found

    def _in_some_order(self) -> list[ShardId]:
        shards = list(self.shards)
        if self.network.storm is not CALM:
            self.chance.shuffle(shards)
        return shards

    def _deliver(self) -> bool:
        wishes: dict[Key, list[tuple[Key | None, Message]]] = {}
        arrived = self.network.arrived(self.now)
        for target, envelope in arrived:
            if isinstance(target, ShardId):
                self.shards[target].take([envelope])
            else:
                wishes.setdefault(Key(str(target)), []).append((envelope.sender, envelope.message))
        words = self.machines.due(self.now)
        for word in words:
            self.tell(word.to, word.message)
        for placer in self.placers:
            self._place(placer, wishes.get(placer.key, []))
        return self._say_orders() or bool(arrived or words)

    def _place(self, placer: Placer, heard: list[tuple[Key | None, Message]]) -> None:
        wakes = placer.wake_at
        if heard or (wakes is not None and wakes <= self.now):
            for send in placer.receive(heard, self.now):
                envelope = Envelope(send.to, send.message, sender=placer.key)
                self._route(envelope, source=placer.key, epoch=0)

    def _placer(self, number: int) -> Placer:
        return Placer(Key(f"placer/{number}"), inventories=self.inventories)

    def add_placer(self) -> None:
        """One more placer, which knows nothing of what the others propose."""
        self.placers.append(self._placer(len(self.placers)))
        self.run_for(0.1)

    def _say_orders(self) -> bool:
        said = False
        for order in self.orders:
            if order.answer is None and order in self._replies:
                order.answer = self._replies.pop(order)
            if order.answer is None and order.again_at <= self.now:
                order.again_at = self.now + RETRY_S
                shard = self.shards[self.sharding.shard_of(order.to)]
                shard.take([Envelope(order.to, order.message, reply_to=order)])
                said = True
        self.orders = [order for order in self.orders if order.answer is None]
        return said

    def _pump(self, shard: ShardId) -> bool:
        core = self.shards[shard]
        wake = core._wake_at()
        if not core.busy and (wake is None or wake > self.now):
            return False
        ready = core.ready(self.now)
        self._load(shard, ready)
        storm = self.network.storm
        dies = bool(storm.crash) and self.chance.random() < storm.crash
        if dies and self.chance.random() < 0.5:
            self.crash(shard)
            return True
        self._write(shard, ready)
        if dies:
            self.crash(shard)
            return True
        core.committed()
        for reply in ready.replies:
            self._replies[reply.reply_to] = reply.value
        for envelope in ready.release:
            self._route(envelope, source=shard, epoch=self.epochs[shard])
        return True

    def _load(self, shard: ShardId, ready: Ready) -> None:
        for key in ready.load:
            row = self.disks[shard].ended.get(key)
            self.shards[shard].loaded(key, None if row is None or row.deleted else row)

    def _write(self, shard: ShardId, ready: Ready) -> None:
        disk = self.disks[shard]
        if ready.frame is not None:
            assert not disk.frames or ready.position == disk.frames[-1].position + 1
            disk.frames.append(Frame(ready.position, ready.frame))
        for row in ready.ended:
            known = disk.ended.get(row.key)
            if known is None or known.position <= row.position:
                disk.ended[row.key] = row
        disk.parts.extend(ready.parts)
        if ready.floor is not None:
            disk.floor[0] = ready.floor.position

    def _route(self, envelope: Envelope, *, source: Any, epoch: int) -> None:
        kind = kind_of(envelope.to)
        if kind == "placer":
            for placer in self._hearing(envelope.to):
                self.network.carry(envelope, self.now, source=source, epoch=epoch, target=placer)
        elif kind == "backend":
            # The machine's own daemon calls it: such calls are not lost, they die with the daemon.
            for word in self.machines.receive(envelope.message, self.now):
                self.tell(word.to, word.message)
        else:
            target = self.sharding.shard_of(envelope.to)
            self.network.carry(envelope, self.now, source=source, epoch=epoch, target=target)

    def _hearing(self, to: Key) -> list[Key]:
        if to == PLACER_ANY:
            self._wishes += 1
            return [self.placers[self._wishes % len(self.placers)].key]
        return [placer.key for placer in self.placers]

    def _next(self) -> float | None:
        times = [self.network.wake_at, self.machines.wake_at]
        times += [placer.wake_at for placer in self.placers]
        times += [core._wake_at() for core in self.shards.values()]
        times += [order.again_at for order in self.orders if order.answer is None]
        return min((at for at in times if at is not None), default=None)


def job_id(name: str) -> Key:
    """A job's key of the length that pod ids count on."""
    return job_key(f"{name:0>36}")


def spec(pool: Key, instances: int = 1, **config: Any) -> JobSpec:
    """A job of alike instances."""
    default = TaskConfig(resources=config.pop("resources", NEED), command=Command("x"), **config)
    return JobSpec("j", "me", pool, instances, default)
