"""Takes up the calls of a client that is gone.

From its workers that live, and from the files that those have left that do not.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Sequence
from typing import Protocol

from peloton.sdk import tasks
from peloton.sdk.client import Client
from peloton.sdk.errors import NotFound, PelotonError
from peloton.sdk.executor.answers import CallAnswer, read_answers
from peloton.sdk.executor.futures import WorkerId
from peloton.sdk.executor.worker import RESULTS_FILE
from peloton.sdk.ops import patiently

LOOK_S = 0.5


class Resumer(Protocol):
    """Who has the calls of the client before."""

    def answered(self, answers: Sequence[CallAnswer], worker: WorkerId) -> None:
        """Settle calls by these answers."""

    def follow(self, job: str, instances: Sequence[int]) -> None:
        """Expect the workers of these instances."""

    def absent(self, instances: Collection[tuple[str, int]]) -> bool:
        """Return whether some of these, of a job each, have neither come nor ended."""

    def nobody_has(self) -> None:
        """Run the calls again that are left."""


def resume(owner: Resumer, client: Client, *, jobs: Sequence[str]) -> None:
    """Settle what workers have answered; run again what none of them has.

    A worker that lives connects by itself, within a second of the client's start. Raises
    PelotonError if the cluster cannot tell.
    """
    running: set[tuple[str, int]] = set()
    for job in jobs:
        living = read_ended(owner, client, job=job)
        if living:
            owner.follow(job, [*living])
        running.update((job, instance) for instance, host in living.items() if host)
    pause = threading.Event()
    while owner.absent(running):  # who is on no host yet has no call
        pause.wait(LOOK_S)
    for job in jobs:  # of workers that have ended meanwhile
        read_ended(owner, client, job=job)
    owner.nobody_has()


def read_ended(owner: Resumer, client: Client, *, job: str) -> dict[int, str]:
    """Read the files of the workers of a job that have ended; return the instances of others, and
    the host of each, empty while it waits for one."""
    try:
        found = patiently(lambda: client.tasks.list(job)).result.value
    except NotFound:
        return {}
    living = {}
    for instance, info in found.items():
        if info.runtime.state in tasks.OVER:
            worker = WorkerId(job, instance, info.runtime.mesosTaskId.value)
            read(owner, client, worker=worker)
        else:
            living[instance] = info.runtime.host
    return living


def read(owner: Resumer, client: Client, *, worker: WorkerId) -> None:
    """Settle calls by the file of a worker that has ended; one that is gone settles none."""
    job, instance, run = worker
    with contextlib.suppress(PelotonError):
        data = b"".join(client.tasks.logs(job, instance, run=run, filename=RESULTS_FILE))
        owner.answered([*read_answers(data)], worker)
