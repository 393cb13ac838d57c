"""An executor of a task's own, by pymesos: it prints what it was given, and runs until it is ended.

Started by an agent of Mesos. It imports nothing of Peloton, as a user's executor would not.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from tests.servers.pymesos_parser import stand_in

stand_in()
from pymesos import Executor, MesosExecutorDriver, decode_data  # noqa: E402


class Own(Executor):  # type: ignore[misc]
    """One task, which is running until somebody ends it."""

    def launchTask(self, driver: Any, task: Any) -> None:
        """The word of the agent to begin."""
        own = decode_data(task["executor"]["data"]), decode_data(task["data"])
        print(task["executor"]["name"], os.environ["MESOS_EXECUTOR_ID"], flush=True)
        print(os.environ["SAID"], *own, flush=True)
        driver.sendStatusUpdate({"task_id": task["task_id"], "state": "TASK_RUNNING"})

    def killTask(self, driver: Any, task_id: Any) -> None:
        """The word to end; the last update is given time to leave."""
        if os.environ["SAID"] == "deaf":
            print("does not end", flush=True)
            return
        print("ends", flush=True)
        driver.sendStatusUpdate({"task_id": task_id, "state": "TASK_KILLED"})
        threading.Timer(1.0, driver.stop).start()


if __name__ == "__main__":
    running = MesosExecutorDriver(Own())
    running.run()
    sys.exit(0)
