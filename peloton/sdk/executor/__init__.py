"""Functions as tasks of a cluster: `from peloton.sdk.executor import PelotonExecutor, task`.

`executor.py` has the interface, `calls.py` the calls that wait, `backend.py` the seam to whoever
runs them: `local.py` (threads) or `cluster.py` (jobs of worker processes, which `links.py` talks
to; `worker.py` is what runs there). A worker loads this file: it must import neither gRPC nor
what does.
"""

from peloton.sdk.executor.errors import NotSendable, RemoteTraceback, TooLarge, WorkerLost
from peloton.sdk.executor.executor import PelotonExecutor
from peloton.sdk.executor.futures import PelotonFuture
from peloton.sdk.executor.tasks import TaskFunction, task

__all__ = [
    "NotSendable", "PelotonExecutor", "PelotonFuture", "RemoteTraceback", "TaskFunction",
    "TooLarge", "WorkerLost", "task",
]  # fmt: skip
