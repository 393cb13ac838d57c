"""Assertions on jobs of a test that, when they fail, print what the cluster says.

assert_state(job, "RUNNING")
assert_counts(job, RUNNING=3, PENDING=1)
assert_waits_because(job, "pool-limit")
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the cluster's messages are loaded when there is a cluster
    from peloton.testing.jobs import JobHandle

AT_REST = ("running", "succeeded")
"""Codes of reasons that hold nothing up."""


def assert_state(job: JobHandle, state: str, *, instance: int | None = None) -> None:
    """Fail unless the job, or one instance of it, is in this state, such as "RUNNING"."""
    __tracebackhide__ = True
    found = job.state if instance is None else job.instance_state(instance)
    if found != state:
        what = f"{job}" if instance is None else f"instance {instance} of {job}"
        raise AssertionError(f"{what} is {found}, not {state}\n{job.said(instance)}")


def assert_counts(job: JobHandle, **counts: int) -> None:
    """Fail unless so many instances are in each of these states."""
    __tracebackhide__ = True
    found = job.counts()
    wrong = [f"{found[state]} {state}, not {n}" for state, n in counts.items() if found[state] != n]
    if wrong:
        raise AssertionError(f"{job} has {'; '.join(wrong)}\n{job.said()}")


def assert_waits_because(job: JobHandle, reason: str, *, instance: int | None = None) -> None:
    """Fail unless this keeps the job, or the instance, from its goal.

    `reason` is a code ("pool-limit", "no-host-fits", …: docs/why.md), or a part of a text.
    """
    __tracebackhide__ = True
    waits = [each for each in job.reasons(instance) if each.code not in AT_REST]
    if not any(reason in words for each in waits for words in _words(each, reason)):
        what = f"{job}" if instance is None else f"instance {instance} of {job}"
        verb = f"does not wait because of {reason!r}" if waits else "waits for nothing"
        raise AssertionError(f"{what} {verb}\n{job.said(instance)}")


def assert_runs_on(job: JobHandle, host: str, *, instance: int = 0) -> None:
    """Fail unless the instance has this host."""
    __tracebackhide__ = True
    found = job.host_of(instance)
    if found != host:
        where = f"on {found}" if found else "on no host"
        raise AssertionError(
            f"instance {instance} of {job} is {where}, not on {host}\n{job.said(instance)}"
        )


def _words(reason: Any, wanted: str) -> Iterator[str]:
    """Yield what a reason may be called by: codes as a whole, and its texts."""
    codes = [reason.code, *(blocker.code for blocker in reason.blockers)]
    yield from (code for code in codes if code == wanted)
    yield reason.text
    yield from (blocker.text for blocker in reason.blockers)
