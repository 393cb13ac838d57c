"""The servers of a storm as processes, and their faults: they are frozen, killed and restarted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from peloton.chaos.nemesis.timeline import Timeline

AGAIN_S = 0.1
SERVE_S_MAX = 120.0


class ServerProcess(Protocol):
    """ZooKeeper, Cassandra, a master or an agent of Mesos, as a process."""

    port: int

    def launch(self) -> None:
        """Start the server without waiting."""

    def answers(self) -> bool:
        """Return whether the server answers."""

    def pause(self) -> None:
        """Freeze the server."""

    def go_on(self) -> None:
        """Thaw the server."""

    def kill(self) -> None:
        """Kill the server, as a crash would."""


class Until(Protocol):
    """Marks a target busy for so long; then calls `end`, which may mark it again."""

    def __call__(self, seconds: float, target: str, *, end: Callable[[], None]) -> None:
        """Mark the target busy from now on."""


class ServerStrikes:
    """Strikes servers by their names."""

    def __init__(
        self, servers: Mapping[str, ServerProcess], timeline: Timeline, *, until: Until
    ) -> None:
        self._servers = servers
        self._timeline = timeline
        self._until = until

    def pause(self, name: str, seconds: float) -> None:
        """Freeze the server for so long."""
        server = self._servers[name]
        server.pause()
        self._timeline.count(f"{name} pauses", f"{name} is frozen for {seconds:.1f} s")

        def end() -> None:
            server.go_on()
            self._timeline.log(f"{name} continues")

        self._until(seconds, name, end=end)

    def restart(self, name: str, down_s: float) -> None:
        """Kill the server, and start it again; record a finding if it does not answer."""
        server = self._servers[name]
        server.kill()
        self._timeline.count(f"{name} restarts", f"kill -9 {name}, down {down_s:.1f} s")
        begun_s = self._timeline.now_s + down_s

        def poll() -> None:
            if server.answers():
                self._timeline.log(f"{name} serves again")
            elif self._timeline.now_s - begun_s > SERVE_S_MAX:
                self._timeline.find(f"{name} did not come back within {SERVE_S_MAX} s")
            else:
                self._until(AGAIN_S, name, end=poll)

        def end() -> None:
            server.launch()
            self._until(AGAIN_S, name, end=poll)

        self._until(down_s, name, end=end)
