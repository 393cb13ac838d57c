"""Exit codes: what a script learns from a command that ended.

1 to 63 belong to the tasks whose code is handed on; the tool's own begin at 64. `run` hands on any
code of its command, and has one for all that went wrong without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peloton.sdk import errors

if TYPE_CHECKING:
    from peloton.sdk.ops import WaitResult

OK = 0
SOME_FAILED = 1
TASK_MAX = 63
USAGE = 64
BAD_SPEC = 65
NOT_FOUND_EXIT = 66
UNAVAILABLE = 69
SERVER_ERROR = 70
CONFLICT = 73
OUTPUT_GONE = 74
TRY_LATER = 75
DENIED = 77
PLAN_WAITS = 80
PLAN_NEVER = 81
PLAN_PREEMPTS = 82
DIFFERS = 83
WAIT_OVER = 124
NO_EXIT_CODE = 125
INTERRUPTED = 130

# The first match counts: subclasses come before their base classes.
BY_ERROR: list[tuple[type[errors.PelotonError], int]] = [
    (errors.BadSpec, BAD_SPEC),
    (errors.NotFound, NOT_FOUND_EXIT),
    (errors.Conflict, CONFLICT),
    (errors.Denied, DENIED),
    (errors.TryLater, TRY_LATER),
    (errors.ServiceUnavailable, UNAVAILABLE),
    # Not 69, which means that a later call may succeed.
    (errors.Unsupported, SERVER_ERROR),
    (errors.CanNeverRun, PLAN_NEVER),
    (errors.PelotonError, SERVER_ERROR),
]


def of_error(error: errors.PelotonError) -> int:
    return next(code for kind, code in BY_ERROR if isinstance(error, kind))


def of_job(ended: WaitResult, *, raw: bool = False) -> int:
    """Return the exit code of `wait`: the code the server named, kept out of the tool's own range.

    `raw`: unchanged. Then a task's 66 cannot be told from a job that does not exist.
    """
    if ended.state == "SUCCEEDED":
        return OK
    if ended.state != "FAILED" or ended.problem:
        return NO_EXIT_CODE
    return min(ended.exit_code, 255 if raw else TASK_MAX) if ended.exit_code > 0 else SOME_FAILED


def of_run(ended: WaitResult) -> int:
    """Return the exit code of `run` of one command: that of the command, or that it has none."""
    none = ended.state == "FAILED" and ended.exit_code <= 0
    return NO_EXIT_CODE if none else of_job(ended, raw=True)
