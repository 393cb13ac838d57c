"""The rigs of the backend of Mesos, on a real and a scripted master.

A rig plays the actor `engine/<cluster>` as well: it lets each link subscribe that asks. The suite's
hosts have names of their own; here they are agents, so a rig writes the one for the other.
"""

from __future__ import annotations

import ssl
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from peloton.actors.engine.messages import AskSubscription, BackendOpen, OpenBackend, Subscribe
from peloton.actors.host import messages as m
from peloton.actors.resources import UNIT, Resources
from peloton.backends.mesos.backend import MesosBackend
from peloton.backends.mesos.conversation import LEFT
from peloton.backends.mesos.framework import Framework
from peloton.backends.port import Backend
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import Key, Message, key
from tests.contracts.backends import (
    DEADLINE_S,
    HOST,
    OTHER,
    BackendRig,
    Exempt,
    Report,
    run,
)
from tests.e2e.cluster import until_there
from tests.servers.mesos import Mesos
from tests.servers.scripted_master import ScriptedMaster

AGENTS = {HOST: "h1", OTHER: "h2"}


class MesosRig(BackendRig):
    """Agents `h1` and `h2` are the hosts of the suite."""

    exempt = frozenset(Exempt)
    kind = "engine"
    left_text = LEFT
    capacity = Resources(8 * UNIT, 8192 * UNIT, 10240 * UNIT)

    def __init__(self, master: str, *, tls: ssl.SSLContext | None = None) -> None:
        name = f"c{uuid.uuid4().hex[:8]}"  # on a master that others have used
        self.framework = Framework(
            cluster=name, master=master, framework_id=f"test-{name}", tls=tls
        )
        self._hosts = {ours: key("host", f"{name}.{hostname}") for ours, hostname in AGENTS.items()}
        self._names = {theirs: ours for ours, theirs in self._hosts.items()}
        self._number = 0
        super().__init__()

    def make(self) -> Backend:
        self._subscribed = False
        return MesosBackend(self.framework)

    def reconnect(self) -> None:
        """A host that appears gives an order, and so has it that its backend is there."""
        super().reconnect()
        for host in AGENTS:
            self.next_report(m.HostAppeared, host)
        super().order(*(m.PingBackend(self._hosts[host]) for host in AGENTS))

    def order(self, *messages: Message) -> None:
        super().order(*(self._theirs(message) for message in messages))

    def ask(self, message: Message) -> Any:
        return super().ask(self._theirs(message))

    def _theirs(self, message: Any) -> Any:
        return replace(message, host=self._hosts.get(message.host, message.host))

    def _collect(self, envelopes: Iterable[Envelope]) -> None:
        found = []
        for envelope in envelopes:
            if envelope.to == self.backend.key:
                self._decide(envelope)
            else:
                ours = self._names.get(envelope.to, envelope.to)
                found.append(Envelope(ours, envelope.message, sender=envelope.sender))
        super()._collect(found)

    def _decide(self, envelope: Envelope) -> None:
        """As the actor does, whose owner is always here."""
        if isinstance(envelope.message, OpenBackend):
            future: Any = envelope.reply_to
            future.set_result(BackendOpen())
            self._let_subscribe()
        elif isinstance(envelope.message, AskSubscription):
            self._let_subscribe()

    def _let_subscribe(self) -> None:
        self._number += 1
        self._call([Envelope(self.backend.key, Subscribe(self._number))])

    def _until(self, found: Callable[[], Report | None]) -> Report | None:
        with self._changed:
            return self._changed.wait_for(found, DEADLINE_S)


class ScriptedMesosRig(MesosRig):
    """A scripted master, whose tasks end when they are told to."""

    def __init__(
        self,
        master: ScriptedMaster | None = None,
        *,
        at: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`at`: where the master is reached, if that is somewhere else."""
        self.master = master or ScriptedMaster(agents=2)
        super().__init__(at or self.master.address, tls=tls)

    def close(self) -> None:
        super().close()
        self.master.stop()

    def take_away(self, host: Key) -> None:
        self.master.lose_agent(AGENTS[host])

    def bring_back(self, host: Key) -> None:
        self.master.return_agent(AGENTS[host])

    def gated(self, name: str) -> m.StartRun:
        return run(name)

    def open_gate(self, name: str) -> None:
        self.master.exits(name, 0)


class RealMesosRig(MesosRig):
    """A real master with two real agents, which others use as well."""

    def __init__(self, mesos: Mesos) -> None:
        self.mesos = mesos
        super().__init__(mesos.leader().address)

    def close(self) -> None:
        super().close()
        port, name = self.mesos.leader().port, self.framework.framework_id
        data = urllib.parse.urlencode({"frameworkId": name}).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/master/teardown", data):
            pass

    def take_away(self, host: Key) -> None:
        agent = self._agent(host)
        agent.pause()
        self.mesos.wait_gone(agent)

    def bring_back(self, host: Key) -> None:
        agent = self._agent(host)
        agent.go_on()
        self.mesos.wait_registered([agent])

    def gated(self, name: str) -> m.StartRun:
        made = run(name)
        return replace(made, spec=replace(made.spec, value=until_there(self._gate(name))))

    def open_gate(self, name: str) -> None:
        self._gate(name).touch()

    def _gate(self, name: str) -> Path:
        return self.mesos.folder / f"{self.framework.cluster}-{name}"

    def _agent(self, host: Key) -> Any:
        return next(one for one in self.mesos.agents if one.hostname == AGENTS[host])
