"""The link to one Mesos cluster: a conversation, and the connection that carries it.

One thread sends the calls and keeps the subscription; the driver has another that reads events.
Both pass events to the conversation under a lock, and reports go to the hosts at once.

Every daemon with hosts has such a link, and one of them is subscribed: that of the daemon that owns
the actor `engine/<cluster>`, through which all orders come. A link asks this actor for each
subscription, and begins it when the number of it is journaled (`actors/engine`). The master ends
the subscription of a link that was overtaken, and refuses its calls.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from peloton.actors.engine.messages import (
    AskSubscription,
    BackendHere,
    BackendOpen,
    OpenBackend,
    Subscribe,
    link_of,
)
from peloton.actors.host.machine_messages import SetUse
from peloton.backends.mesos.cluster_news import ClusterNews
from peloton.backends.mesos.conversation import Conversation
from peloton.backends.mesos.events import agents_of, heartbeat_of, is_of_an_executor
from peloton.backends.mesos.framework import Framework
from peloton.backends.mesos.host_orders import HostOrders
from peloton.backends.mesos.master_list import AskTimes, MasterList, master_list
from peloton.backends.mesos.masters.calls import CallFailed
from peloton.backends.mesos.masters.driver import MesosDriver
from peloton.backends.mesos.masters.operator_api import Credential
from peloton.backends.mesos.uses import bring_about, trouble_of
from peloton.backends.port import POISON, HostsOrder, ReportProblem, Tell
from peloton.backends.secrets_first import SecretsFirst, no_secrets
from peloton.pauses import Pauses
from peloton.runtime.adapters.system_clock import SystemClock
from peloton.runtime.core.turning.envelope import Envelope, Reply
from peloton.runtime.vocabulary import Refused, key

REMOVED, OVERTAKEN = "Framework has been removed", "Framework failed over"
"""What the master says to a framework that is no more, and to one that another link has begun."""
BACKOFF = Pauses(0.1, 15.0)
"""Between two attempts to subscribe: the first pause, and the longest."""
OPEN_AGAIN_S = 2.0
"""Between two orders to the actor to begin to exist."""
OPEN_WAIT_S = 10.0
"""How long the actor may take to answer; then it is ordered once more, as the order may be lost."""
SILENT_BEATS, SILENT_MORE_S = 3, 5.0
"""Heartbeats that may be missing until the stream counts as dead, and how late they may be."""
NOT_CONFIGURED = "NOT_CONFIGURED"


class _Ended(NamedTuple):
    """The end of a stream."""

    driver: MesosDriver
    why: str


class MesosBackend:
    """The ephemeral service behind `link/<cluster>`; its reports are those of the backend."""

    own_thread = False  # it has threads of its own; nothing here waits
    wake_at: float | None = None

    def __init__(self, framework: Framework, clock: Callable[[], float] = time.monotonic) -> None:
        self.key = key("engine", framework.cluster)
        self.prefix = link_of(self.key)
        self._framework, self._clock = framework, clock
        self._lock = threading.Lock()
        self._talk = Conversation(
            framework.cluster,
            role=framework.role,
            backend=self.key,
            first_number=int(SystemClock().now() * 1000),
        )
        self._talk.agents.keeper = framework.keeper
        self.secrets = SecretsFirst(no_secrets, failed=self.reset)
        """How secrets are read may be replaced before the start."""
        self._orders = HostOrders(self._talk, self.secrets, lock=self._lock, clock=clock)
        self._news = ClusterNews(framework.cluster, self._talk, lock=self._lock, clock=clock)
        self._todo: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._tell: Tell = lambda reports: None
        self._trouble: ReportProblem = lambda component, problem: None
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._work, name=f"mesos-{framework.cluster}", daemon=True
        )
        self._silent_s = 60.0
        self._last_event = 0.0
        self._ask_times = AskTimes()
        self._sleeps_until = 0.0
        self._removed = False
        self._granted = threading.Event()
        """A subscription may begin: its number is journaled."""
        self._may_ask = True
        """Whether the actor has said, since we asked last, that its owner is here."""
        self._live = False
        """Whether a subscription was granted, and has not ended."""

    def start(self, tell: Tell, trouble: ReportProblem | None = None) -> None:
        """Wait for a subscription. Hosts are announced from the master's lists."""
        self._tell = tell
        if trouble is not None:
            self._trouble = trouble
        self._thread.start()
        name = f"{self._thread.name}-opens"
        threading.Thread(target=self._open, name=name, daemon=True).start()

    def receive(self, envelopes: Sequence[Envelope], now: float) -> Iterable[Envelope | Reply]:
        """Take orders of hosts."""
        out: list[Envelope | Reply] = []
        with self._lock:
            for envelope in envelopes:
                order: Any = envelope.message
                if isinstance(order, Subscribe):
                    if not self._live:  # else it would be kept, and used when its time is over
                        self._live = True
                        self._granted.set()
                    continue
                self._may_ask = True
                if isinstance(order, BackendHere):
                    continue
                if isinstance(order, HostsOrder):
                    text = "the hosts of this backend are the agents of its Mesos cluster"
                    if envelope.reply_to is not None:
                        out.append(Reply(envelope.reply_to, Refused(NOT_CONFIGURED, text)))
                    continue
                self._orders.take(order, then=self._carry)
            out += self._taken()
            if not self._live and self._may_ask and not self._removed:
                self._may_ask = False
                out.append(Envelope(self.key, AskSubscription(), sender=self.prefix))
        return out

    def reset(self) -> None:
        """Begin anew after an order that could not be read: hosts compare."""
        self._todo.put(_Ended(None, "an order could not be read"))  # type: ignore[arg-type]

    def rename(self, member: str, *, number: int, count: int) -> None:
        """Take the daemon's name in a fleet. Orders come to the daemons they are for."""

    def stop_all(self, grace_s: float) -> bool:
        """End nothing: runs belong to the cluster, which goes on without this daemon."""
        return True

    def close(self) -> None:
        """Leave: the tasks go on until we subscribe again, or the time for that is over."""
        self._closing.set()
        self.secrets.close()
        self._granted.set()
        self._todo.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def _open(self) -> None:
        """Create the actor of the cluster if it does not exist."""
        while not self._closing.is_set():
            answer: Future[Any] = Future()
            self._tell([Envelope(self.key, OpenBackend(), reply_to=answer)])
            try:
                found = answer.result(timeout=OPEN_WAIT_S)
            except TimeoutError:  # nobody has it: its shard may be moving, or have no owner yet
                continue
            if isinstance(found, BackendOpen | Refused):
                text = found.text if isinstance(found, Refused) else ""
                self._trouble(f"cluster {self._framework.cluster}", text)
            if isinstance(found, BackendOpen):
                return
            self._closing.wait(OPEN_AGAIN_S)

    # ---- the thread that sends ----

    def _work(self) -> None:
        failures = 0
        while not self._closing.is_set():
            self._granted.wait()
            self._granted.clear()
            began = self._clock()
            why = "closing" if self._closing.is_set() else self._subscription()
            if self._closing.is_set():
                return
            self._say(why)
            failures = 1 if self._clock() - began > BACKOFF.most_s else failures + 1
            self._closing.wait(BACKOFF.after(failures) * random.uniform(0.5, 1.0))
            self._ask_again(overtaken=why == OVERTAKEN)

    def _ask_again(self, *, overtaken: bool) -> None:
        """Ask for the next subscription; an overtaken link waits until the owner is here."""
        with self._lock:
            self._live = False
            asks = not (overtaken or self._removed)
            self._may_ask = self._may_ask and not asks
        if asks:
            self._tell([Envelope(self.key, AskSubscription(), sender=self.prefix)])

    def _say(self, why: str) -> None:
        """Report the end of the subscription: the hosts are down as well, for now."""
        framework = self._framework
        if why == REMOVED:
            self._removed = True
            why = (
                f"framework {framework.framework_id} has been removed at the master: its tasks are "
                "gone. To begin with a new one, set another `framework` in the settings"
            )
        with self._lock:
            self._talk.disconnected(why)
            self._orders.cut_off()
            self._drop_calls()
            reports = self._taken()
        self._trouble(f"cluster {framework.cluster} maintenance", "")
        self._news.executors(self._trouble, known=False)
        self._news.words(self._trouble, known=False)
        if why == OVERTAKEN:  # hosts are told by the other link, which may have been quicker
            self._trouble(f"cluster {framework.cluster}", "")
            return
        self._tell(reports)
        self._trouble(f"cluster {framework.cluster}", why)

    def _subscription(self) -> str:
        """Hold one subscription; return why it is over."""
        self._drop_calls()
        driver: MesosDriver = MesosDriver(
            self._framework.master,
            self._framework.info,
            heard=lambda event: self._heard(driver, event),
            ended=lambda why: self._todo.put(_Ended(driver, why)),
            credential=Credential(self._framework.principal, self._framework.secret)
            if self._framework.secret
            else Credential(),
        )
        driver.tls = self._framework.tls
        self._last_event = self._clock()
        self._ask_times.again(self._last_event)
        driver.start()
        try:
            return self._serve(driver)
        finally:
            driver.stop(failover=True)
            driver.join()

    def _drop_calls(self) -> None:
        """Drop the calls of the subscription before: secrets may be in them."""
        while not self._todo.empty():
            self._todo.get_nowait()

    def _serve(self, driver: MesosDriver) -> str:
        while not self._closing.is_set():
            with self._lock:
                self._sleeps_until = wake_at = self._wakes_at()
            try:
                todo = self._todo.get(timeout=max(wake_at - self._clock(), 0.001))
            except queue.Empty:
                todo = ()
            if todo is None:
                break
            if isinstance(todo, _Ended):
                if todo.driver is driver or todo.driver is None:
                    return todo.why
                continue
            try:
                while todo:  # no call is kept that was sent
                    driver.call(todo.pop(0))
                with self._lock:
                    looks = self._ask_times.is_due(self._clock())
                self._ask(driver, looks=looks and driver.connected)
            except CallFailed as failed:
                return str(failed)
            if self._clock() - self._last_event > self._silent_s:
                return f"no heartbeat of the master for {self._silent_s:g} s"
            self._due()
        return "closing"

    def _ask(self, driver: MesosDriver, *, looks: bool) -> None:
        """Tell the master which hosts are in use, and read its list.

        An answer that cannot be read counts as none.
        """
        try:
            self._tell_uses(driver)
            if looks:
                self._look(driver)
        except POISON as why:
            with self._lock:
                self._talk.unreadable.skip("an answer to an operator", why, self._clock())
            self._news.words(self._trouble)

    def _wakes_at(self) -> float:
        """Return when the sending thread has something to do by itself. Call under the lock."""
        found, list_at = self._talk.wake_at, self._ask_times.next_at
        return list_at if found is None else min(found, list_at)

    def _carry(self) -> None:
        """Carry away the reports of an order that was obeyed late."""
        with self._lock:
            reports = self._taken()
        self._tell(reports)

    def _due(self) -> None:
        with self._lock:
            self._talk.due(self._clock())
            reports = self._taken()
        self._tell(reports)
        self._news.words(self._trouble)

    # ---- events ----

    def _heard(self, driver: MesosDriver, event: Mapping[str, Any]) -> None:
        self._last_event = now = self._clock()
        kind = event.get("type")
        if kind == "SUBSCRIBED":
            self._silent_s = SILENT_BEATS * heartbeat_of(event) + SILENT_MORE_S
        listed = None
        if kind == "SUBSCRIBED" or self._names_strangers(kind, event):
            listed = self._agents(driver)
        with self._lock:
            if kind == "SUBSCRIBED":
                self._talk.subscribed(now)
            if listed is not None:
                self._talk.told_agents(listed, now)
            self._talk.heard(event, now)
            if kind == "FAILURE" and not is_of_an_executor(event):
                self._ask_times.soon(now)
            reports = self._taken()
        self._tell(reports)
        self._news.words(self._trouble)
        if kind == "SUBSCRIBED":
            self._trouble(f"cluster {self._framework.cluster}", "")
        if kind in ("SUBSCRIBED", "FAILURE"):
            self._news.executors(self._trouble)

    def _names_strangers(self, kind: Any, event: Mapping[str, Any]) -> bool:
        """Return whether an event is of an agent that we do not know yet."""
        found = agents_of(event) if kind in ("OFFERS", "UPDATE") else ()
        with self._lock:
            now, agents = self._clock(), self._talk.agents
            if all(agents.at(one) is not None for one in found):
                return False
            return self._ask_times.may_ask(now)

    def _look(self, driver: MesosDriver) -> None:
        """Ask the master for its agents, and pass the list on."""
        listed = self._agents(driver)
        with self._lock:
            self._talk.told_agents(listed, self._clock())
            reports = self._taken()
            strays = self._talk.uses.strays(self._talk.agents)
        self._tell(reports)
        problem = trouble_of(strays, driver.ask)
        self._trouble(f"cluster {self._framework.cluster} maintenance", problem)
        self._news.executors(self._trouble)
        self._news.words(self._trouble)

    def _tell_uses(self, driver: MesosDriver) -> None:
        """Tell the master which hosts are in use."""
        with self._lock:
            orders = self._talk.uses.take()
            agents = {one.host: self._talk.agents.machine_of(one.host) for one in orders}
        if not orders:
            return

        def still(order: SetUse) -> bool:
            """Return whether to go on: the master accepts this from an overtaken link as well."""
            with self._lock:
                return driver.lives and self._talk.uses.is_newest(order)

        now = SystemClock().now()
        answers = bring_about(orders, agents, ask=driver.ask, now=now, still=still)
        with self._lock:
            self._talk.uses.told(answers, self._clock())
        self._tell(Envelope(host, answer, sender=self.key) for host, answer in answers)

    def _agents(self, driver: MesosDriver) -> MasterList:
        with self._lock:
            number = self._ask_times.asked(self._clock())
        framework = self._framework
        with_executors = framework.keeper is not None
        found = master_list(driver.ask, framework.framework_id, executors=with_executors)
        return found._replace(number=number)

    def _taken(self) -> list[Envelope]:
        """Return the reports, and pass the calls to the sending thread. Call under the lock.

        That thread is also woken if it would sleep beyond what is due next.
        """
        calls, reports = self._talk.take()
        if calls or self._talk.uses.open or self._wakes_at() < self._sleeps_until:
            self._sleeps_until = 0.0
            self._todo.put(calls)
        return reports
