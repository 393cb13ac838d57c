"""The guardian: the process that the agent knows, and the parent of the executor.

An executor that is killed would leave its tasks behind, each in a session of its own, and the agent
would not find them: they would run on while others run in their place. So orphans of the executor
become children of the guardian, which kills them and then ends as the executor did. Where the
guardian is killed the executor learns it by a pipe, and ends its tasks itself.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from typing import NoReturn

from peloton.backends.keeper import processes

SIGNAL_BASE = 128
FAILED_STATUS = 1


def guard(work: Callable[[int], None], *, clear: Callable[[], None]) -> NoReturn:
    """Run `work` in a child, and end as it does.

    The child gets a descriptor whose reading ends with this process. `clear` removes what a child
    that was killed has left.
    """
    processes.become_subreaper()
    # Not SIG_IGN, which tasks would inherit. The executor has handlers of its own later.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        status = FAILED_STATUS
        try:
            os.close(writes)
            # With the guardian an agent kills its session, and tasks would be left.
            os.setsid()
            work(reads)
            end_children()
            status = 0
        except BaseException:  # the executor's output is the only place left for the reason
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(reads)
    while True:
        pid, status = os.wait()
        if pid == child:
            break
    end_children()
    clear()
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else SIGNAL_BASE - code)


def end_children() -> None:
    """Kill all children, and theirs, which become ours by that.

    A child keeps its id until it is waited for, so no other process is meant.
    """
    while found := processes.children():
        for pid in found:
            processes.signal_group(pid, signal.SIGKILL)
            processes.signal_one(pid, signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return
