"""A host as its backend knows it: the actor, whose turn and journal are one here, and its tasks.

The tasks want runs begun and ended, and have seen each end at once.
"""

from __future__ import annotations

from collections.abc import Callable

from peloton.actors.host import messages as m
from peloton.actors.host.decide import deadline
from peloton.actors.host.goals import HostNotes, recall_s
from peloton.actors.host.kind import kind
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.host.stages import OCCUPYING, HostStates, RunPhase
from peloton.actors.host.state import Host as Actor
from peloton.actors.host.state import lost_outcome
from peloton.actors.task import messages as t
from peloton.backends.port import Order
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import At, Bits, Due, Key, Message, Pursue, Send
from tests.backends.mesos.bench import BACKEND
from tests.servers.mesos_model.times import Times
from tests.transcripts.actors.brief import brief

KIND = kind(1)
LOST_BY_HOST = lost_outcome("").reason
GRACE_S = 10.0


class Host:
    """One host. `lost`: is told of a run that a list proves lost, and of the list."""

    def __init__(
        self,
        times: Times,
        key: Key,
        *,
        order: Callable[[Order], None],
        lost: Callable[[str, m.RunsListed], None],
    ) -> None:
        self.key, self.epoch = key, 1
        self.specs: dict[str, RunSpec] = {}
        self.killed: set[str] = set()
        """Those whose tasks wanted them ended."""
        self.ends: dict[str, t.RunOutcome] = {}
        """The outcome of each run, as its task has it."""
        self.forgotten: set[str] = set()
        """Of which the backend was told that their ends are journaled."""
        self._begun: set[str] = set()
        self._times, self._order, self._lost = times, order, lost
        self._actor: Actor | None = None
        self._notes: HostNotes | None = None
        self._deadline: tuple[str, float] | None = None
        self._deadlines = 0

    @property
    def state(self) -> HostStates:
        return HostStates.LOST if self._actor is None else self._actor.state

    @property
    def runs(self) -> dict[str, RunPhase]:
        """Those that hold resources."""
        every = self._actor.runs.items() if self._actor is not None else ()
        return {name: run.phase for name, run in every if run.phase in OCCUPYING}

    # ---- what is told ----

    def start(self, order: m.StartRun) -> bool:
        """A task wants a run here; whether it is accepted."""
        self.specs[order.run] = order.spec
        self._of_task(order.run, m.Launch(1, order.spec))
        return order.run in self.runs

    def kill(self, run: str) -> None:
        """Its task wants it ended."""
        self.killed.add(run)
        self._of_task(run, m.KillRun(1, GRACE_S))

    def move(self) -> None:
        """Another daemon has its shard; it polls."""
        self.epoch += 1
        self._notes = self._deadline = None
        self._turn(m.RecheckBackend())

    def told(self, report: Message) -> None:
        """A report of the backend."""
        self._times.note(f"{self.key} is told {brief(report)}")
        known, before = {*self.ends}, self._actor
        self._turn(report)
        if isinstance(report, m.RunsListed) and before is not None:
            told = known.union(end.run for end in report.ends)
            same = not before.incarnation or report.incarnation in ("", before.incarnation)
            for run in self.ends:
                if run not in told and run in self._begun and same:
                    self._lost(run, report)

    # ---- the actor ----

    def _of_task(self, run: str, message: Message) -> None:
        found = t.parse_pod(run)
        assert found is not None
        self._turn(message, found[1], sender=found[0])

    def _turn(self, message: Message, *members: int, sender: Key = BACKEND) -> None:
        at = At(
            self._times.now,
            self.key,
            sender,
            Bits.of(*members) if members else None,
            notes=self._notes,
            epoch=self.epoch,
        )
        before = self.state
        turn = take_turn(KIND, self._actor, message=message, at=at)
        self._actor = turn.state
        if self.state is not before:
            self._times.note(f"{self.key}: {self.state.name}")
        if turn.notes is not None:
            self._notes = turn.notes
            self._wake_later()
        self._look_at_deadline()
        for send in turn.sends:
            if send.to == BACKEND:
                self._to_backend(send.message)
            elif send.members is not None:
                self._to_tasks(send)

    def _wake_later(self) -> None:
        notes = self._notes
        at_s = None if notes is None else recall_s(notes)

        def wake() -> None:
            if self._notes is notes:
                self._turn(Pursue())

        if at_s is not None:
            self._times.later(at_s - self._times.now, wake)

    def _look_at_deadline(self) -> None:
        named = None if self._actor is None else deadline(self._actor)
        if named == self._deadline:
            return
        self._deadline = named
        self._deadlines += 1
        count = self._deadlines
        if named is not None:
            name, after_s = named

            def over() -> None:
                if self._deadlines == count:
                    self._turn(Due(name))

            self._times.later(after_s, over)

    def _to_backend(self, order: Order) -> None:
        if isinstance(order, m.ForgetRuns):
            self.forgotten.update(order.runs)
        self._order(order)

    def _to_tasks(self, send: Send) -> None:
        told, members = send.message, [*(send.members or ())]
        if isinstance(told, t.Started | t.Ended):
            names = [t.pod_id(send.to, member, run=told.run) for member in members]
            if isinstance(told, t.Started):
                self._begun.update(names)
                return
            self.ends |= dict.fromkeys(names, told.outcome)
        if isinstance(told, t.Ended | t.RunRefused):
            self._turn(m.RunSeen(told.run), *members, sender=send.to)
