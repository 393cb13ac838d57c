"""Starting a program as another account, and handing its sandbox to that account.

Turns (program, account) into a running process. Only a keeper that is root can do it. It must not
open a file by its path once the account has the folder: a task of the same account could have put
a link to one of root's files there.

Between fork and exec only the C code of `subprocess` runs, as it does for `Popen(user=...)`. That
is a plain fork, which costs some tenths of a millisecond more than `posix_spawn` in processes.py,
which cannot change the user.
"""

from __future__ import annotations

import os
import subprocess

from .accounts import Account

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_NEW_OUTPUT = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW


class SwitchFailed(Exception):
    """The process could not become the account: nothing was executed."""


def spawn_as(
    account: Account,
    *,
    value: str,
    arguments: list[str],
    environment: dict[str, str],
    sandbox: str,
) -> int:
    """The pid of the program, which runs already. Raises SwitchFailed, OSError, ValueError.

    It leaves the sandbox as the working folder of this process.
    """
    opened: list[int] = []
    try:
        opened.append(os.open(os.devnull, os.O_RDONLY))
        opened += _hand_over(sandbox, account)
        null, box, output, errors = opened
        os.fchdir(box)
        started = subprocess.Popen(
            arguments,
            executable=value,
            env=environment,
            stdin=null,
            stdout=output,
            stderr=errors,
            close_fds=False,  # they are closed by the exec, the one with the lock among them
            start_new_session=True,
            user=account.uid,
            group=account.gid,
            extra_groups=account.groups,
        )
        # The keeper's loop waits for all children; this object must not take the exit status.
        started.returncode = 0
        return started.pid
    except subprocess.SubprocessError as trouble:
        raise SwitchFailed(f"cannot become {account.name}: {trouble}") from trouble
    except OSError as trouble:
        if trouble.filename is None:  # not that of the program
            text = f"cannot become {account.name}: {os.strerror(trouble.errno or 0)}"
            raise SwitchFailed(text) from trouble
        raise
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _hand_over(sandbox: str, account: Account) -> list[int]:
    """Descriptors of the folder and of its two logs, which are made; all are the account's.

    The folder is given away last: until then nobody else can put anything into it.
    """
    opened = [os.open(sandbox, _FOLDER)]
    try:
        for name in ("stdout", "stderr"):
            opened.append(os.open(name, _NEW_OUTPUT, 0o600, dir_fd=opened[0]))
            os.fchown(opened[-1], account.uid, account.gid)
        os.fchown(opened[0], account.uid, account.gid)
    except OSError:
        for descriptor in opened:
            os.close(descriptor)
        raise
    return opened
