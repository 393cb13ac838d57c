"""A gRPC server of the gateway over very many jobs, a process of its own: for `bench/queries.py`.

The jobs are in the views of shards, as a daemon has them; there are no turns, no journal and no
tasks, so that a hundred thousand are there in seconds. Its argument is the number of jobs. It ends
when its input ends.
"""

from __future__ import annotations

import gc
import random
import sys
import time
import uuid
from concurrent.futures import Future
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from peloton.actors.job.messages import GetJob, job_key
from peloton.actors.job.slice.task_config import (  # noqa: E402
    Command,
    TaskConfig,
)
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import JobStates  # noqa: E402
from peloton.actors.job.state import Job
from peloton.actors.job.view import get_job, summary, texts  # noqa: E402
from peloton.actors.respool.messages import pool_key  # noqa: E402
from peloton.api.v0.job import job_pb2  # noqa: E402
from peloton.assembly.kinds import kinds  # noqa: E402
from peloton.gateway.access.authentication import Authentication  # noqa: E402
from peloton.gateway.cluster.sandboxes import SandboxFiles  # noqa: E402
from peloton.gateway.grpc_server import build_server  # noqa: E402
from peloton.runtime.core.reading.listing import ListViews  # noqa: E402
from peloton.runtime.core.reading.views import Views  # noqa: E402
from peloton.runtime.vocabulary import Absent, At, Key, Query, key  # noqa: E402
from peloton.settings.daemon import ALONE_SHARDS  # noqa: E402

SHARDS = ALONE_SHARDS["jobmgr"]
TEAMS, MODELS = 50, 1000
STATES = (JobStates.PENDING, JobStates.RUNNING, JobStates.SUCCEEDED, JobStates.SUCCEEDED)


def job_id(number: int) -> str:
    """The id of a job; by no order that has to do with when it was created."""
    return str(uuid.UUID(int=random.Random(number).getrandbits(128)))


def made(number: int, *, now_s: float) -> Job:
    """A job; every thousandth has the same model, every fiftieth the same team."""
    value = f"python train.py --model resnet-{number % MODELS} --data /data/set --epochs 90"
    default = TaskConfig(name="train", command=Command(value))
    config = job_pb2.JobConfig(name=f"nightly-{number}", owningTeam="research", instanceCount=100)
    spec = JobSpec(
        name=config.name,
        owner=config.owningTeam,
        pool=pool_key("p"),
        instances=100,
        default=default,
        labels=(("team", f"team-{number % TEAMS}"), ("tier", "2")),
        has_default=False,
        raw=config.SerializeToString(),
    )
    return Job(
        key=job_key(job_id(number)),
        spec=spec,
        pool_path="/research",
        state=STATES[number % len(STATES)],
        created_at=now_s - number,
        started_at=now_s - number,
        updated_at=now_s - number,
    )


class Listed:
    """What the gateway needs of a cluster, over jobs that never change."""

    def __init__(self, count: int) -> None:
        known = kinds(ALONE_SHARDS)
        self._views = {key("shard", "jobmgr", at): Views(known) for at in range(SHARDS)}
        self._jobs: dict[Key, Job] = {}
        now_s, shards = time.time(), [*self._views.values()]
        chance = random.Random(1)
        for number in range(count):
            one = made(number, now_s=now_s)
            self._jobs[one.key] = one
            views = chance.choice(shards)
            views._next[one.key] = summary(one.key, one)
            views._next_texts[one.key] = texts(one)
        for views in shards:
            views.commit()

    def shards_of(self, kind: str) -> list[Key]:
        """As the port says."""
        return [*self._views]

    def read(self, to: Key, query: Query) -> Any:
        """As the port says."""
        if isinstance(query, ListViews):
            return self._views[to].read(query)
        found = self._jobs.get(to)
        if found is None or not isinstance(query, GetJob):
            return Absent(to)
        return get_job(found, query, At(now=0.0, key=to))

    def ask(self, to: Key, message: Any, **more: Any) -> Future[Any]:
        """As the port says."""
        future: Future[Any] = Future()
        future.set_result(self.read(to, message))
        return future


def main(count: int) -> None:
    """Print the address, and serve until the input ends."""
    cluster: Any = Listed(count)
    gc.collect()
    gc.freeze()  # as a daemon does after its recovery
    boxes = SandboxFiles(None, ("127.0.0.1", 1))
    server, ports = build_server(
        cluster, ["127.0.0.1:0"], authentication=Authentication.open(), boxes=boxes
    )
    server.start()
    print(f"ready: grpc 127.0.0.1:{ports[0]}", flush=True)
    sys.stdin.read()
    server.stop(0).wait(5)


if __name__ == "__main__":
    main(int(sys.argv[1]))
