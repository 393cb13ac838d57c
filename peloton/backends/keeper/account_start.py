"""The program of a task's process before its command, which becomes its account.

Turns a process of root with a description of the task into the task. The program is executed by its
path with an environment of the keeper's alone: variables of a task such as LD_PRELOAD would be
obeyed by the loader while the process is still root's. The variables are in the description, not in
the arguments, which every user of the machine can read.

Only modules that are part of the interpreter may be imported: nothing is read from a disk once the
process is the account, and each import would delay each start. Whatever the command's file makes
the kernel wait for, this process waits for it alone.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import errno
import marshal
import posix

REPORT_FD, TASK_FD = 3, 4
SWITCH, EXEC = "switch", "exec"
_READ_BYTES = 1024 * 1024
_FAILED_STATUS, _NOT_RUNNABLE_STATUS = 125, 126


def main() -> None:
    """Replace this program by the task's. If that fails, print the reason in one line and exit."""
    step = SWITCH
    try:
        posix.set_inheritable(REPORT_FD, False)
        uid, gid, groups, paths, arguments, environment = marshal.loads(_all_of(TASK_FD))
        _close_others()
        # The interpreter ignores them for itself, and a task would inherit that.
        _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
        _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)
        posix.setgroups(groups)
        posix.setresgid(gid, gid, gid)
        posix.setresuid(uid, uid, uid)
        step = EXEC
        _execute(paths, arguments, environment=environment)
    except OSError as trouble:
        report = f"{posix.getpid()} {step} {trouble.errno or 0}\n"
        posix.write(REPORT_FD, report.encode())
        posix._exit(_FAILED_STATUS if step == SWITCH else _NOT_RUNNABLE_STATUS)


def _execute(
    paths: list[bytes], arguments: list[bytes], *, environment: dict[bytes, bytes]
) -> None:
    """Execute the first path that can be run; else raise the most telling error."""
    denied: OSError | None = None
    missing: OSError = FileNotFoundError(errno.ENOENT, "")
    for path in paths:
        try:
            posix.execve(path, arguments, environment)
        except (FileNotFoundError, NotADirectoryError) as trouble:
            missing = trouble
        except OSError as trouble:
            denied = denied or trouble
    raise denied or missing


def _all_of(descriptor: int) -> bytes:
    pieces = []
    while piece := posix.read(descriptor, _READ_BYTES):
        pieces.append(piece)
    return b"".join(pieces)


def _close_others() -> None:
    """Close all descriptors but the standard three and the report's, which the exec closes."""
    for name in posix.listdir("/proc/self/fd"):
        if int(name) > REPORT_FD:
            posix.closerange(int(name), int(name) + 1)  # that of the listing is closed already


if __name__ == "__main__":
    main()
