"""The jobs whose instances are the workers of an executor: created, followed, stopped.

Each time more workers are needed one job more is made, of as many instances. It knows no calls.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peloton
from peloton.sdk import caller_environment, tasks
from peloton.sdk.addresses import are_local
from peloton.sdk.client import Client
from peloton.sdk.defaults import has_mesos, task_share
from peloton.sdk.errors import CanNeverRun, NotFound, PelotonError, ServiceUnavailable
from peloton.sdk.executor.errors import WorkerLost
from peloton.sdk.executor.futures import WorkerId
from peloton.sdk.executor.options import WorkerSettings
from peloton.sdk.executor.worker import ADDRESS, KEEP, TOKEN_FILE
from peloton.sdk.jobs import secret
from peloton.sdk.ops import patiently

MODULE = "peloton.sdk.executor.worker"
LABEL = "executor"
"""The label of the jobs of an executor: its name."""
END_SEEN_S, LOOK_S = 60.0, 0.2
"""For how long the end of a lost worker is looked for."""
FIRST_LOOK_S, LOOK_S_MAX = 2.0, 30.0
"""Pauses of looking whether workers can run at all, until one does."""
SAID_BYTES = 2000
"""Of the end of what a worker has said on stderr."""
Instance = tuple[str, int]


class WorkerJobs:
    """The instances that are workers, or are to be.

    `over` is told of each job that has ended: why, if no worker of it had ever connected.
    """

    def __init__(
        self,
        client: Client,
        settings: WorkerSettings,
        *,
        name: str,
        over: Callable[[PelotonError | None], None],
    ) -> None:
        local = not settings.elsewhere and are_local(client.addresses())
        self.here = local and not has_mesos(client)
        """Whether workers run on this machine."""
        self._client = client
        self._settings = settings
        self._name = name
        self._over = over
        self._pool_id = client.pools.lookup(settings.pool)
        self._lock = threading.Lock()
        self._live: dict[Instance, bool] = {}
        """The instances that have not ended, and whether a worker has connected."""
        self._seen: set[str] = set()
        self.newest = ""

    @property
    def live(self) -> int:
        """Return how many instances have not ended."""
        return len(self._live)

    def create(self, count: int, address: str, *, token_file: Path) -> str:
        """Create a job of so many workers; return its id. Raises PelotonError."""
        spec = self._spec(count, address, token_file=token_file)
        secrets = () if self.here else (secret("token", token_file.read_bytes()),)
        key, pool = str(uuid.uuid4()), self._settings.pool
        made = patiently(
            lambda: self._client.jobs.create(pool, spec, secrets=secrets, request_key=key)
        )
        job = str(made.jobId.value)
        self.follow(job, range(count))
        return job

    def follow(self, job: str, instances: Any) -> None:
        """Count these instances of a job, until they end; workers of some may be there already."""
        with self._lock:
            for instance in instances:
                self._live.setdefault((job, instance), False)
            self.newest = job
        threading.Thread(target=self._watch, args=(job,), daemon=True).start()

    def _watch(self, job: str) -> None:
        try:
            never = self._waited(job)
        except PelotonError as error:  # nobody has answered for a minute
            never = error
        with self._lock:
            for instance in [one for one in self._live if one[0] == job]:
                del self._live[instance]
        if job in self._seen:
            self._over(None)
        else:
            self._over(never or WorkerLost(self._without_worker(job)))

    def _waited(self, job: str) -> PelotonError | None:
        """Wait for the end of a job; return why it can never run, if that is so, and end it."""
        pause_s = FIRST_LOOK_S
        while job not in self._seen:
            if self._client.ops.wait(job, timeout_s=pause_s).done:
                return None
            pause_s = min(2 * pause_s, LOOK_S_MAX)
            for one in self._client.ops.why(job).reasons:
                never = [blocker.code for blocker in one.blockers if blocker.never]
                if never and not self._settings.wait_for_hosts and job not in self._seen:
                    self._client.jobs.stop(job)
                    text = f"no worker can ever run as things are: {one.text}"
                    return CanNeverRun(f"{text} (wait_for_hosts=True waits)", reasons=never)
        self._client.ops.wait(job)
        return None

    def _without_worker(self, job: str) -> str:
        """Return why a job has ended before any worker of it had connected."""
        text = f"no worker of job {job} could begin"
        with contextlib.suppress(PelotonError):
            text += f": {'; '.join(self.reasons(job))}"
        with contextlib.suppress(PelotonError):
            said = b"".join(self._client.tasks.logs(job, 0, filename="stderr"))[-SAID_BYTES:]
            text += f"; it said: {said.decode(errors='replace').strip()}" if said else ""
        return text

    def arrived(self, worker: WorkerId) -> None:
        with self._lock:
            self._live[worker.job, worker.instance] = True
            self._seen.add(worker.job)

    def ended(self, worker: WorkerId) -> None:
        """Note that an instance runs no more."""
        with self._lock:
            self._live.pop((worker.job, worker.instance), None)

    def absent(self) -> list[Instance]:
        """Return the instances that have not ended, and whose worker has not connected."""
        with self._lock:
            return [instance for instance, is_there in self._live.items() if not is_there]

    def lost(self, worker: WorkerId) -> str:
        """Wait until the cluster has seen the end of a worker's run; return what it says of it.

        An instance that runs again stays among the live ones.
        """
        with self._lock:
            if (worker.job, worker.instance) in self._live:
                self._live[worker.job, worker.instance] = False
        pause = threading.Event()
        for _ in range(int(END_SEEN_S / LOOK_S)):
            with contextlib.suppress(ServiceUnavailable):
                try:
                    runtime = self._client.tasks.get(worker.job, worker.instance).result.runtime
                except NotFound:
                    self.ended(worker)
                    return "its job was deleted"
                if runtime.state in tasks.OVER:
                    self.ended(worker)
                    return self.reasons(worker.job, worker.instance)[0]
                if runtime.mesosTaskId.value != worker.run:
                    return f"its run {worker.run} has ended, and its instance runs again"
            pause.wait(LOOK_S)
        return f"the cluster has not seen the end of its run {worker.run}"

    def reasons(self, job: str, instance: int | None = None) -> tuple[str, ...]:
        """Return why a job, or an instance, is in the state it is in. Raises PelotonError."""
        found = self._client.ops.why(job, instance)
        return tuple(dict.fromkeys(one.text for one in found.reasons)) or ("no reason is known",)

    def stop_absent(self) -> None:
        """Stop the instances whose workers have not connected: nobody waits for them any more."""
        absent: dict[str, list[int]] = {}
        for job, instance in self.absent():
            absent.setdefault(job, []).append(instance)
        for job, instances in absent.items():
            with contextlib.suppress(PelotonError):  # they end by themselves, for want of a client
                self._client.tasks.stop(job, [(one, one + 1) for one in instances])

    # The spec of a job.

    def _spec(self, count: int, address: str, *, token_file: Path) -> dict[str, Any]:
        settings = self._settings
        python = settings.python or ((sys.executable,) if self.here else ("python3",))
        words = [*python, "-P", "-m", MODULE]
        return {
            "name": f"executor-{self._name}" if self._name else "executor",
            **({"owner": self._client.user} if self._client.user else {}),
            "type": "BATCH",
            "instanceCount": count,
            **({"labels": [{"key": LABEL, "value": self._name}]} if self._name else {}),
            "sla": {"preemptible": settings.preemptible},
            "defaultConfig": {
                "resource": self._resource(),
                "command": {"shell": False, "value": words[0], "arguments": words},
                "environment": {
                    "variables": [
                        {"name": name, "value": value}
                        for name, value in self._environment(address, token_file).items()
                    ]
                },
            },
        }

    def _environment(self, address: str, token_file: Path) -> dict[str, str]:
        found: dict[str, str] = {}
        if self.here:
            found = caller_environment.taken(os.environ)
            paths = [str(Path(peloton.__file__).parent.parent), found.get("PYTHONPATH", "")]
            found["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        found |= dict(self._settings.env)
        found[ADDRESS] = address
        found[TOKEN_FILE] = str(token_file) if self.here else "token"
        if self._name:
            found[KEEP] = str(self._settings.keep_s)
        return found

    def _resource(self) -> dict[str, float]:
        settings = self._settings
        found = {"cpuLimit": settings.cpu or 0.0, "memLimitMb": settings.memory_mb or 0.0}
        if settings.cpu is None or settings.memory_mb is None:
            share = task_share(self._client, settings.pool).resource(settings.cpu)
            for name, given in (("cpuLimit", settings.cpu), ("memLimitMb", settings.memory_mb)):
                found[name] = share[name] if given is None else found[name]
        found["diskLimitMb"] = settings.disk_mb
        if settings.gpu:
            found["gpuLimit"] = settings.gpu
        return found
