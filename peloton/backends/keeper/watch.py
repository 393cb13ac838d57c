"""The round: periodic checks of conditions that no kernel event reports.

Turns /proc into limits enforced, adopted runs found ended, and strays killed. A round must cost
nothing while there is nothing to check. The end of an ordinary run must not wait for a round.
"""

from __future__ import annotations

import signal

from . import adoption, kinds, processes
from .limits import memory_limit_mb
from .runs import Runs
from .stops import has_grace

# Pages shared within a group are counted once per process, and a peak is no leak.
MEMORY_LEEWAY = 1.25
JOURNAL_COMPACT_BYTES_MIN = 4 * 1024 * 1024


def check_all(runs: Runs) -> None:
    _watch_memory(runs)
    _watch_limits(runs)
    _end_strays(runs)
    runs.end_left()
    runs.checks.kill_noisy()
    runs.write_acks()
    runs.sandboxes.prune()
    runs.compact(JOURNAL_COMPACT_BYTES_MIN)


def check_adopted(runs: Runs) -> None:
    """End the adopted runs that have ended.

    The leader's end ends the run, as for our own children; while it is being stopped, the end of
    the last process in its group does. If the supervisor will report the end, that is waited for.
    """
    for run in list(runs.adopted.values()):
        if run.inherited or (not run.exit and processes.is_alive(run.pid, run.birth)):
            continue
        found = processes.stat(run.pid)
        ours = found is None or found.birth == run.birth  # else it is another process's number
        if ours and has_grace(run) and processes.has_group(run.pid):
            continue
        # The pid of a watcher may be another process's by now.
        if ours and not (run.container or run.pod):
            adoption.kill_session(run.pid)
        adoption.kill_marked(runs.folder, run.run_id.__eq__)
        runs.lose(run)
    runs.look_at_pods()


def _watch_memory(runs: Runs) -> None:
    """Check the memory of runs without a control group that limits it.

    It is polled, and never set by RLIMIT_AS: address space is not memory, and a runtime that
    reserves much and touches little would be killed.
    """
    limited = {
        run.pid: run
        for run in [*runs.by_pid.values(), *runs.adopted.values()]
        if run.memory_mb > 0
        and not run.kill_requested
        and not run.over_limit
        and not run.container  # the engine does
        and not runs.limits.holds_memory(run)
    }
    if not limited:
        return
    for pid, rss_bytes in processes.rss_by_session(limited).items():
        run = limited[pid]
        limit_mb = memory_limit_mb(run) * MEMORY_LEEWAY
        used_mb = rss_bytes / 1024 / 1024
        if used_mb > limit_mb:
            message = f"{used_mb:.0f} MB resident, {run.memory_mb:g} MB asked for"
            runs.kill_over_limit(run, message, reason=kinds.OVER_MEMORY)


def _watch_limits(runs: Runs) -> None:
    """End runs with a process killed by the kernel, or with too large sandboxes or volumes."""
    for run in runs.limits.check(runs.memory.runs):
        runs.kill_over_limit(run, run.over_limit, reason=run.over_reason)
    for run, used_mb in runs.disk_use.check(runs.memory.runs):
        message = f"the sandbox uses {used_mb:.0f} MB, its limit is {run.limits['disk_mb']:g} MB"
        runs.kill_over_limit(run, message, reason=kinds.DISK_LIMIT)
    for run, used_mb in runs.volume_use.check(runs.memory.runs):
        message = f"the volume has {used_mb:.0f} MB, its size is {run.volume['mb']:g} MB"
        runs.kill_over_limit(run, message, reason=kinds.DISK_LIMIT)


def _end_strays(runs: Runs) -> None:
    """Kill orphans reparented to the keeper, whose run has ended.

    An orphan whose run is unknown (it changed session and environment) is spared while any run is
    alive that may be its own, and not a round longer.
    """
    helpers = {*runs.helper_pids}
    live = {run.run_id for run in runs.by_pid.values()} | runs.adopted.keys()
    for pid in processes.children():
        if pid in runs.by_pid or pid in helpers:
            continue
        found = processes.stat(pid)
        if found is None or found.state in "ZX" or found.session in runs.by_pid:
            continue
        run_id = processes.marked_run(pid, runs.folder)
        if not (run_id in live if run_id else live):
            processes.signal_one(pid, signal.SIGKILL)
