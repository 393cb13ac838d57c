"""A Mesos on loopback: a master, or several that ZooKeeper elects from, and agents.

`Mesos.start(folder)` returns when a master leads and all agents are registered there. Each agent
has its own port, folders and host name: with one name for all, what ends one machine ends all.
Times are short, so that a test can outlive a ping. It is no pattern for production: nobody is
authenticated, and nothing is isolated.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from tests.servers import leftovers, mesos_home
from tests.servers.process import LOOK_AGAIN_S, READY_TIMEOUT_S, Server, ServerFailed, free_ports

PROBE_TIMEOUT_S = 5.0
PING_S, PINGS_MAX = 1, 5
"""An agent that is silent for that long is removed."""
RESOURCES = "cpus:8;mem:8192;disk:10240;ports:[31000-32000]"
ROOMY = "cpus:8;mem:8192;disk:40000;ports:[31000-32000]"
"""Two of these have room for the pools of the examples."""
# With fewer, a master that waits for ZooKeeper has no thread left that could hear it.
THREADS = 8
COMMON = (
    "--ip=127.0.0.1", "--no-hostname_lookup", "--logging_level=INFO",
)  # fmt: skip
MASTER = (
    "--hostname=127.0.0.1", "--registry=replicated_log", "--allocation_interval=100ms",
    f"--agent_ping_timeout={PING_S}secs", f"--max_agent_ping_timeouts={PINGS_MAX}",
)  # fmt: skip
AGENT = (
    "--no-systemd_enable_support", "--launcher=posix", "--isolation=posix/cpu,posix/mem",
    "--containerizers=mesos", "--registration_backoff_factor=100ms",
    "--executor_shutdown_grace_period=1secs",
)  # fmt: skip
STARTED = " started on "
ASKED_TOO_EARLY = "AuthenticatorManager::authenticate()"
STARTS_MAX = 3


T = TypeVar("T")


def ask(port: int, path: str) -> Any:
    """What a process of Mesos answers to a GET; None while it does not."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PROBE_TIMEOUT_S) as r:
            return json.load(r)
    except (OSError, ValueError):  # an HTTPError is an OSError
        return None


class MesosServer(Server):
    """What masters and agents have in common.

    Their port takes calls a moment before they can serve them, and the first one then ends the
    process (a null pointer in libprocess). So nothing is asked here before the log says that it
    started; and where a client of the test asked that early, it is started again, as whoever
    supervises a real one does.
    """

    flags: tuple[str, ...] = ()
    _log_begins = 0

    def launch(self, *, outlive: bool = False) -> None:
        self._log_begins = self.log.stat().st_size if self.log.exists() else 0
        super().launch(outlive=outlive)

    def wait_until_ready(self) -> None:
        for _ in range(STARTS_MAX - 1):
            try:
                return super().wait_until_ready()
            except ServerFailed:
                if self.process is not None or ASKED_TOO_EARLY not in self._said():
                    raise
                self.launch()
        return super().wait_until_ready()

    def answers(self) -> bool:
        return STARTED in self._said() and self.serves()

    def serves(self) -> bool:
        """Whether one that started does what is asked of it."""
        return ask(self.port, "/version") is not None

    def _said(self) -> str:
        """Its log since it was launched."""
        with self.log.open("rb") as log:
            log.seek(self._log_begins)
            return log.read().decode(errors="replace")

    def configure(self) -> None:
        """All is said by flags."""

    def environment(self) -> dict[str, str]:
        own = {"LIBPROCESS_IP": "127.0.0.1", "LIBPROCESS_NUM_WORKER_THREADS": str(THREADS)}
        return mesos_home.environment() | own


class Master(MesosServer):
    """One master. Alone it leads; of several under one `zookeeper` path one does."""

    name: ClassVar[str] = "mesos-master"

    def __init__(self, folder: Path, *, zookeeper: str = "", quorum: int = 1) -> None:
        super().__init__(folder, free_ports(1)[0])
        self.zookeeper = zookeeper
        self.quorum = quorum

    def serves(self) -> bool:
        """Not before its registry takes part in votes: the others may be killed then."""
        told = ask(self.port, "/metrics/snapshot") or {}
        return bool(told.get("registrar/log/recovered"))

    def command(self) -> list[str]:
        words = [str(mesos_home.home() / "sbin/mesos-master"), *COMMON, *MASTER]
        words += [f"--port={self.port}", f"--work_dir={self.folder / 'work'}"]
        if self.zookeeper:
            words += [f"--zk={self.zookeeper}", "--zk_session_timeout=5secs"]
            words += [f"--quorum={self.quorum}"]
        return [*words, *self.flags]


class Agent(MesosServer):
    """One agent, a machine of its own as far as the master can see."""

    name: ClassVar[str] = "mesos-agent"

    def __init__(self, folder: Path, *, master: str, number: int) -> None:
        super().__init__(folder, free_ports(1)[0])
        self.master = master
        self.hostname = f"h{number}"
        self.resources = RESOURCES
        self.attributes = f"host:h{number};rack:r{number}"

    def command(self) -> list[str]:
        home = mesos_home.home()
        words = [str(home / "sbin/mesos-agent"), *COMMON, *AGENT]
        words += [f"--port={self.port}", f"--hostname={self.hostname}", f"--master={self.master}"]
        words += [f"--launcher_dir={home / 'libexec/mesos'}", f"--resources={self.resources}"]
        words += [f"--attributes={self.attributes}"]
        for flag, part in (("work_dir", "work"), ("runtime_dir", "run")):
            words.append(f"--{flag}={self.folder / part}")
        words.append(f"--fetcher_cache_dir={self.folder / 'fetched'}")
        if os.geteuid() != 0:
            words.append("--no-switch_user")
        return [*words, *self.flags]

    def forget(self) -> None:
        """Let the next start be that of a new agent, after a kill: its runs end, its id is gone."""
        leftovers.end_below(self.folder)
        for part in ("work", "run"):
            shutil.rmtree(self.folder / part, ignore_errors=True)


class Mesos:
    """A cluster. Members of `masters` and `agents` are paused, killed and restarted one by one."""

    def __init__(
        self, folder: Path, *, agents: int = 1, masters: int = 1, zookeeper: str = "",
        quorum: int | None = None, resources: str = RESOURCES,
    ) -> None:  # fmt: skip
        if masters > 1 and not zookeeper:
            raise ValueError("several masters need a ZooKeeper that elects one")
        self.folder = folder.resolve()
        path = f"zk://{zookeeper}/mesos-{self.folder.name}" if zookeeper else ""
        quorum = masters // 2 + 1 if quorum is None else quorum
        self.masters = [
            Master(self.folder / f"master{at}", zookeeper=path, quorum=quorum)
            for at in range(1, masters + 1)
        ]
        self.resources = resources
        self.address = path or self.masters[0].address
        self.agents = [self._agent(at) for at in range(1, agents + 1)]
        self._guard: subprocess.Popen[bytes] | None = None

    def _agent(self, number: int) -> Agent:
        agent = Agent(self.folder / f"agent{number}", master=self.address, number=number)
        agent.resources = self.resources
        return agent

    @classmethod
    def start(
        cls, folder: Path, *, agents: int = 1, masters: int = 1, zookeeper: str = ""
    ) -> Mesos:
        """A new cluster that serves."""
        cluster = cls(folder, agents=agents, masters=masters, zookeeper=zookeeper)
        try:
            cluster.launch()
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def launch(self) -> None:
        """Start all, and return when all agents are registered with the master that leads."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._guard is None:
            self._guard = leftovers.guard(self.folder)
        for master in self.masters:
            master.launch()
        for master in self.masters:
            master.wait_until_ready()
        self.leader()
        for agent in self.agents:
            agent.launch()
        for agent in self.agents:
            agent.wait_until_ready()
        self.wait_registered(self.agents)

    def add_agent(self) -> Agent:
        """One more agent, registered."""
        agent = self._agent(len(self.agents) + 1)
        self.agents.append(agent)
        agent.launch()
        agent.wait_until_ready()
        self.wait_registered([agent])
        return agent

    def leader(self) -> Master:
        """The master that leads, as soon as one does."""
        return until(self._leader, "no master leads")

    def _leader(self) -> Master | None:
        for asked in self.masters:
            state = ask(asked.port, "/state") if asked.process is not None else None
            port = (state or {}).get("leader_info", {}).get("port")
            for master in self.masters:
                if master.port == port and master.process is not None:
                    return master
        return None

    def registered(self) -> dict[str, str]:
        """The id of each agent that the leading master knows and hears, by its host name."""
        state = ask(self.leader().port, "/slaves") or {"slaves": []}
        return {one["hostname"]: one["id"] for one in state["slaves"] if one["active"]}

    def wait_registered(self, agents: Sequence[Agent]) -> dict[str, str]:
        """The same, once these are among them."""
        names = {agent.hostname for agent in agents}

        def all_there() -> dict[str, str] | None:
            found = self.registered()
            return found if names <= found.keys() else None

        return until(all_there, f"not registered: {', '.join(sorted(names))}")

    def wait_gone(self, agent: Agent) -> None:
        """Return when the master has given the agent up."""
        until(lambda: agent.hostname not in self.registered() or None, f"{agent.hostname} is there")

    def restart(self, agent: Agent, *, recover: bool = True) -> str:
        """Start a killed agent again, as what it was or as a new one; its id."""
        if not recover:
            agent.forget()
        agent.restart()
        return self.wait_registered([agent])[agent.hostname]

    def stop(self) -> None:
        """End everything at once: nobody will read these data again."""
        for server in (*self.agents, *self.masters):
            server.kill()
        leftovers.end_below(self.folder)
        if self._guard is not None:
            self._guard.communicate()
            self._guard = None


def until(look: Callable[[], T | None], complaint: str) -> T:
    """What `look` finds, as soon as it finds something."""
    until_s, pause = time.monotonic() + READY_TIMEOUT_S, threading.Event()
    while time.monotonic() < until_s:
        found = look()
        if found is not None:
            return found
        pause.wait(LOOK_AGAIN_S)
    raise ServerFailed(f"{complaint} within {READY_TIMEOUT_S:g} s")
