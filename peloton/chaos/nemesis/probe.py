"""Measures how long shards do not answer: every daemon is polled for a job of each job shard.

Turns answers into the longest time without one, by shard, within a span of time. There is a thread
for each pair of daemon and shard, so that a daemon which hangs, or does not listen yet, hides no
answer of another; how long a client waits that tries them in turn, the clients of the storm
measure. A refusal is no answer.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial

from peloton.chaos.nemesis.fleet import DaemonProcess, NemesisFleet
from peloton.chaos.nemesis.timeline import Timeline
from peloton.runtime.ports import ShardId
from peloton.sdk.client import Client
from peloton.sdk.errors import PelotonError

ASK_S = 1.0
AGAIN_S = 0.25


class Probe:
    """Polls from `start` to `stop`; `canaries` has a job for each shard."""

    def __init__(self, fleet: NemesisFleet, timeline: Timeline) -> None:
        self._fleet = fleet
        self._timeline = timeline
        self._answers: dict[ShardId, list[float]] = {}
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, canaries: Mapping[ShardId, str]) -> None:
        for shard, job_id in canaries.items():
            self._answers[shard] = []
            for daemon in self._fleet.daemons:
                polling = partial(self._poll, shard, job_id, daemon=daemon)
                thread = threading.Thread(target=polling, daemon=True)
                self._threads.append(thread)
                thread.start()

    def stop(self) -> None:
        """Stop polling."""
        self._over.set()
        for thread in self._threads:
            thread.join(ASK_S * 5)

    def answered_since(self, since_s: float) -> bool:
        """Return whether there was an answer about every shard since then."""
        return all(times and times[-1] > since_s for times in self._answers.values())

    def silences(self, since_s: float, until_s: float) -> dict[ShardId, float]:
        """Return the longest time without an answer that overlaps this span, by shard."""
        found = {}
        for shard, answers in self._answers.items():
            known = sorted(answers)
            before = [at_s for at_s in known if at_s <= since_s][-1:] or [since_s]
            within = [at_s for at_s in known if since_s < at_s <= until_s]
            times = [*before, *within, until_s]
            found[shard] = max(b - a for a, b in zip(times, times[1:], strict=False))
        return found

    def _poll(self, shard: ShardId, job_id: str, *, daemon: DaemonProcess) -> None:
        with Client(daemon.address, timeout_s=ASK_S) as client:
            while not self._over.wait(AGAIN_S):
                if not daemon.alive or daemon.frozen:
                    continue
                try:
                    client.jobs.get(job_id)
                except PelotonError:
                    continue  # another daemon may answer
                self._answers[shard].append(self._timeline.now_s)
