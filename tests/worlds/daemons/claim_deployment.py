"""Daemons that own shards and do nothing else, on one stepper, and what must always hold of them.

Turns the claim shell's orders into a root that obeys them late, and sometimes cannot. The tests
compute how shards should be ranked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from peloton.runtime.core.owning.handoff import Handoff
from peloton.runtime.core.owning.ownership import ShardAction, ranked
from peloton.runtime.ports import MemberNode, ShardId
from peloton.runtime.shells.claim import ClaimShell, MembershipStatus
from peloton.runtime.shells.shell_messages import (
    Closed,
    DrainAll,
    Opened,
    ShardLost,
    ShellFailed,
    send,
)
from peloton.runtime.simulation.membership import Ensemble, SimulatedMembership
from peloton.runtime.simulation.scheduled import ScheduledShell, begun
from peloton.runtime.simulation.stepper import Stepper

WORK_S_MAX = 1.0
FENCED_S_MAX = 3.0
Trouble = Callable[[ShardId], ShardLost | None]


class Root(ScheduledShell):
    """A controller that carries out all actions, and fails at a contradictory one."""

    def __init__(self, stepper: Stepper, deployment: Deployment, name: str) -> None:
        super().__init__(f"root-{name}", stepper)
        self.deployment = deployment
        self.claim: Freezing
        self.trouble: Trouble = lambda shard: None
        self.running: dict[ShardId, int] = {}  # shard → its epoch; 0 while it opens
        self.ending: dict[ShardId, None] = {}
        self.status: MembershipStatus | None = None
        self.orders: Counter[str] = Counter()
        self.broke: list[str] = []
        self.frozen = False

    def handle(self, letter: Any) -> None:
        if isinstance(letter, ShellFailed):
            self.broke.append(letter.text)
        if not self.frozen:
            super().handle(letter)

    # ---- the controller ----

    def own(self, shards: tuple[ShardId, ...]) -> None:
        for shard in shards:
            assert shard not in self.running, f"{self.name} was ordered twice to own {shard}"
            self.orders["own"] += 1
            self.running[shard] = 0
            self._soon(lambda shard=shard: self._open(shard), shard)

    def disown(self, shards: tuple[ShardId, ...]) -> None:
        self.orders["drain"] += len(shards)
        self._give(shards)

    def drop(self, shards: tuple[ShardId, ...]) -> None:
        self.orders["drop"] += len(shards)
        assert self.status is not None
        self.orders["dropped while current"] += self.status.current
        self._give(shards)

    def status_changed(self, status: MembershipStatus) -> None:
        self.status = status

    # ---- what becomes of shards ----

    def lose(self, shard: ShardId, lost: ShardLost) -> None:
        """The shard ends by itself."""
        if shard in self.running and shard not in self.ending:
            del self.running[shard]
            send(self.claim.ref, lost)

    def _give(self, shards: tuple[ShardId, ...]) -> None:
        for shard in shards:
            assert shard not in self.ending, f"{self.name} was ordered twice to end {shard}"
            self.ending[shard] = None
            self.at(self.now + self.upto(WORK_S_MAX), lambda shard=shard: self._closed(shard))

    def _closed(self, shard: ShardId) -> None:
        self.running.pop(shard, None)
        del self.ending[shard]
        send(self.claim.ref, Closed(shard))

    def _open(self, shard: ShardId) -> None:
        lost = self.trouble(shard)
        if lost is not None:
            self.lose(shard, lost)
            return
        epoch = self.running[shard] = self.deployment.claim(shard)
        send(self.claim.ref, Opened(shard))
        self._write(shard, epoch)

    def _write(self, shard: ShardId, epoch: int) -> None:
        """As long as it runs; a newer epoch fences it."""
        if epoch < self.deployment.epochs[shard]:
            self.deployment.fenced += 1
            self.lose(shard, ShardLost(shard, "fenced"))
            return
        lost = self.trouble(shard)
        if lost is not None:
            self.lose(shard, lost)
            return
        self._soon(lambda: self._write(shard, epoch), shard, FENCED_S_MAX)

    def _soon(self, do: Callable[[], None], shard: ShardId, most_s: float = WORK_S_MAX) -> None:
        """Unless the shard has ended, or begun another life, meanwhile."""
        life = self.running[shard]

        def later() -> None:
            if self.running.get(shard) == life and shard not in self.ending:
                do()

        self.at(self.now + 0.01 + self.upto(most_s), later)


class Freezing(ClaimShell):
    """One whose orders are counted, and whose process may stand still: what it was told
    meanwhile it hears afterwards."""

    frozen = False

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.obeyed: Counter[str] = Counter()

    def _obey(self, order: ShardAction) -> None:
        self.obeyed[order.action.name] += 1
        super()._obey(order)

    def handle(self, letter: Any) -> None:
        if self.frozen:
            self.missed.append(letter)
        else:
            super().handle(letter)

    def freeze(self) -> None:
        self.frozen, self.missed = True, []

    def thaw(self) -> None:
        self.frozen = False
        for letter in self.missed:
            send(self.ref, letter)


class Daemon:
    """One process."""

    def __init__(self, deployment: Deployment, name: str, roles: tuple[str, ...]) -> None:
        self.name = name
        self.client = SimulatedMembership(deployment.ensemble, name)
        self.root = begun(Root(deployment.stepper, deployment, name))
        node = MemberNode(f"{name}:1", roles)
        self.handoff = Handoff(name, node, sizes=deployment.sizes)
        self.claim = self.root.claim = begun(
            Freezing(
                deployment.stepper,
                handoff=self.handoff,
                membership=self.client,
                controller=self.root,
                root=self.root.ref,
            )
        )
        self.gone: Future[Any] = Future()

    def freeze(self) -> None:
        """The whole process stands still: no sign of life, and no idea of the time that passes."""
        self.client.cut()
        self.claim.freeze()
        self.root.frozen = True

    def thaw(self) -> None:
        """It goes on where it was, and believes what it believed."""
        if self.root.frozen:
            self.root.frozen = False
            self.root.at(self.root.now, lambda: None)
            self.claim.thaw()
            self.client.heal()


class Deployment:
    """All daemons, and the ensemble."""

    def __init__(self, seed: int, *, sizes: dict[str, int], daemons: int = 0) -> None:
        self.stepper = Stepper(seed)
        self.sizes = sizes
        self.shards = [ShardId(g, at) for g in sorted(sizes) for at in range(sizes[g])]
        self.ensemble = begun(Ensemble(self.stepper))
        self.epochs = dict.fromkeys(self.shards, 0)
        self.fenced = 0
        self.daemons: dict[str, Daemon] = {}
        self._born = 0
        for _ in range(daemons):
            self.start()

    @property
    def now(self) -> float:
        return self.stepper.clock.now_s

    def claim(self, shard: ShardId) -> int:
        self.epochs[shard] += 1
        return self.epochs[shard]

    def start(self, roles: tuple[str, ...] = ("a", "b")) -> Daemon:
        self._born += 1
        name = f"d{self._born}"
        daemon = self.daemons[name] = Daemon(self, name, roles)
        return daemon

    def kill(self, name: str) -> None:
        """Without a word."""
        daemon = self.daemons.pop(name)
        daemon.client.die()
        self.stepper.drop([daemon.claim, daemon.root])

    def drain(self, name: str) -> Future[Any]:
        """The daemon leaves in good order."""
        daemon = self.daemons[name]
        send(daemon.claim.ref, DrainAll(daemon.gone))
        return daemon.gone

    def finish(self, name: str) -> None:
        """The process ends after it has left."""
        daemon = self.daemons.pop(name)
        assert daemon.gone.done() and not daemon.root.running
        self.stepper.drop([daemon.claim, daemon.root])

    def run_until(self, so: Callable[[], bool], *, seconds: float) -> float:
        """Step until it holds; returns how long that took."""
        begun_s = self.now

        def look() -> bool:
            self.check()
            if self.now - begun_s > seconds:
                raise AssertionError(f"not so after {seconds} s\n{self.tell_all()}")
            return so()

        self.stepper.run(look, steps_max=1_000_000)
        return self.now - begun_s

    def run(self, seconds: float) -> None:
        """That long."""
        end = self.now + seconds
        self.ensemble.at(end, lambda: None)
        self.run_until(lambda: self.now >= end, seconds=seconds + 100.0)

    # ---- what must hold ----

    def check(self) -> None:
        """After every step."""
        service = self.ensemble
        for shell in [service, *(daemon.root for daemon in self.daemons.values())]:
            if shell.error is not None:
                raise shell.error
        for daemon in self.daemons.values():
            assert not daemon.root.broke, daemon.root.broke
            member = daemon.handoff.member
            for shard in daemon.root.running:
                if shard in daemon.root.ending or member not in service.members:
                    continue
                # Who runs a shard under a standing session holds its node; so of two that run
                # one shard, all but one have lost their session and are about to be told.
                owner = service.owners.get(shard)
                assert owner == member, f"{daemon.name} runs {shard}, whose node is {owner}'s"

    def settled(self) -> bool:
        """Every shard is owned by its first in rank, works there, and nowhere else."""
        service = self.ensemble
        running: dict[ShardId, list[str]] = {shard: [] for shard in self.shards}
        for daemon in self.daemons.values():
            for shard, epoch in daemon.root.running.items():
                whole = epoch and shard not in daemon.root.ending
                running[shard].append(daemon.handoff.member if whole else "?")
        for shard in self.shards:
            first = next(iter(ranked(shard, service.members)), None)
            if service.owners.get(shard) != first or running[shard] != ([first] if first else []):
                return False
        return len(service.members) == len(self.daemons)

    def orders(self) -> Counter[str]:
        """All orders so far of the daemons there are."""
        total: Counter[str] = Counter()
        for daemon in self.daemons.values():
            total += daemon.claim.obeyed
        return total

    def tell_all(self) -> str:
        lines = [f"members {self.ensemble.members}", f"owners {self.ensemble.owners}"]
        for daemon in self.daemons.values():
            handoff = daemon.handoff
            view = handoff.view.version if handoff.view else None
            lines.append(f"{daemon.name} as {handoff.member}: {handoff.session}, view {view}")
            for shard, place in handoff.shards.items():
                lines.append(f"  {shard} {place.state.name} {vars(place)}")
        return "\n".join(lines)
