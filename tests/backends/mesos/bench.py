"""A conversation in virtual time: orders and events go in, and what comes of them is kept.

Each test says what the master says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from peloton.actors.host import messages as m
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.resources import UNIT, Resources
from peloton.backends.mesos.conversation import Conversation
from peloton.backends.mesos.master_list import MasterList
from peloton.backends.mesos.runs.keeper_tasks import KeeperProgram
from peloton.backends.port import Order
from peloton.backends.secrets_first import NO_VALUES, SecretValues
from peloton.runtime.vocabulary import Key
from tests.backends.mesos.words import ROLE, Json, agent, offer, status

BACKEND = Key("backend/east")
HOST, OTHER = Key("host/east.h0"), Key("host/east.h1")
JOB = "0e1f9a3c-1111-4222-8333-444455556666"
FIRST_NUMBER = 1_000_000
Kind = TypeVar("Kind")


def name(instance: int, run: int = 1) -> str:
    """A run of the job."""
    return f"{JOB}-{instance}-{run}"


def start(instance: int, *, cpus: float = 1.0, **spec: Any) -> m.StartRun:
    """The order of one run."""
    need = Resources(int(cpus * UNIT))
    return m.StartRun(name(instance), RunSpec(need, **{"value": "true", **spec}))


class Talk:
    """The conversation, the time, and what was said to the master and to hosts since `clear`."""

    def __init__(self, keeper: KeeperProgram | None = None) -> None:
        self.now = 0.0
        self.it = Conversation("east", role=ROLE, backend=BACKEND, first_number=FIRST_NUMBER)
        self.it.agents.keeper = keeper
        self.calls: list[Json] = []
        self.reports: list[tuple[Key, Any]] = []

    @classmethod
    def begun(cls, *agents: Json) -> Talk:
        """Subscribed, with these agents, by default one; their hosts have compared."""
        talk = cls()
        talk.subscribe(*(agents or (agent("S0", "h0"),)))
        for host in talk.it.agents.by_host:
            talk.order(m.PingBackend(host))
        return talk.clear()

    def subscribe(self, *agents: Json) -> None:
        """The master takes us, and lists its agents."""
        self.it.subscribed(self.now)
        self.it.told_agents(MasterList(agents), self.now)
        self._take()

    def disconnect(self) -> None:
        """The stream is over. What was not sent yet is not sent any more."""
        self.it.disconnected("gone")
        self._take()

    def agents(self, *listed: Json, executors: Sequence[Json] = ()) -> None:
        """The master lists its agents, and our executors there."""
        self.it.told_agents(MasterList(listed, executors), self.now)
        self._take()

    def order(self, *orders: Order, values: SecretValues = NO_VALUES) -> None:
        """Hosts order this, and these are the values of secrets that were read for it."""
        for each in orders:
            self.it.ordered(each, self.now, values=values)
        self._take()

    def start(
        self,
        *runs: m.StartRun,
        epoch: int = 1,
        host: Key = HOST,
        values: SecretValues = NO_VALUES,
    ) -> None:
        """A host orders these runs."""
        self.order(m.StartRuns(host, epoch, runs), values=values)

    def hear(self, kind: str, **what: Any) -> None:
        """The master tells an event."""
        self.it.heard({"type": kind, kind.lower(): what}, self.now)
        self._take()

    def offer(self, *offers: Json) -> None:
        """It offers these, or something of the first agent."""
        self.hear("OFFERS", offers=[*(offers or (offer("O1"),))])

    def update(self, *updates: Json) -> None:
        """It tells these updates."""
        for each in updates:
            self.hear("UPDATE", status=each)

    def running(self, *instances: int) -> Talk:
        """These are launched, and run."""
        for one in instances:
            self.start(start(one))
            self.offer(offer(f"O-{one}"))
            self.update(status(name(one), "RUNNING", uuid=f"u-{one}", timestamp=50.0))
        return self.clear()

    def until(self, now: float) -> None:
        """Time passes, and what is due is done when it is."""
        while (wake_at := self.it.wake_at) is not None and wake_at <= now:
            self.now = max(self.now, wake_at)
            self.it.due(self.now)
            self._take()
        self.now = now

    def clear(self) -> Talk:
        """What was said so far is of no matter."""
        self.calls, self.reports = [], []
        return self

    def _take(self) -> None:
        calls, reports = self.it.take()
        self.calls += calls
        self.reports += [(each.to, each.message) for each in reports]
        assert {each.sender for each in reports} <= {BACKEND}

    # ---- what was said ----

    def called(self, kind: str) -> list[Any]:
        """The calls of this kind, without their frame."""
        return [each.get(kind.lower()) for each in self.calls if each["type"] == kind]

    @property
    def kinds(self) -> list[str]:
        """The kinds of all calls."""
        return [each["type"] for each in self.calls]

    def told(self, kind: type[Kind], host: Key = HOST) -> list[Kind]:
        """The reports of this kind to this host."""
        return [each for to, each in self.reports if to == host and isinstance(each, kind)]

    def launched(self) -> list[list[str]]:
        """The tasks of each ACCEPT."""
        return [
            [
                task["task_id"]["value"]
                for op in each["operations"]
                for task in op.get("launch", {}).get("task_infos", ())
            ]
            for each in self.called("ACCEPT")
        ]

    def grouped(self) -> list[list[str]]:
        """The executor of each LAUNCH_GROUP, and its tasks."""
        return [
            [
                op["launch_group"]["executor"]["executor_id"]["value"],
                *(task["task_id"]["value"] for task in op["launch_group"]["task_group"]["tasks"]),
            ]
            for each in self.called("ACCEPT")
            for op in each["operations"]
            if op["type"] == "LAUNCH_GROUP"
        ]

    def acknowledged(self) -> list[tuple[str, str]]:
        """Runs and the updates of them that were."""
        return [(each["task_id"]["value"], each["uuid"]) for each in self.called("ACKNOWLEDGE")]

    def killed(self) -> list[tuple[str, float]]:
        """Runs and their grace."""
        return [
            (each["task_id"]["value"], each["kill_policy"]["grace_period"]["nanoseconds"] / 1e9)
            for each in self.called("KILL")
        ]

    def asked(self) -> list[list[str]]:
        """What each RECONCILE asks about: nothing in particular for all there is."""
        return [
            [one["task_id"]["value"] for one in each["tasks"]] for each in self.called("RECONCILE")
        ]

    def ends(self, host: Key = HOST) -> list[m.RunEnd]:
        """The ends that a host was told, but for those in lists."""
        return [end for each in self.told(m.RunsEnded, host) for end in each.ends]
