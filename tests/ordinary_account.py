"""The ordinary account as which tests run where the suite is root, and how a process becomes it.

Turns a process of root into one of `peloton-tests`, for good. What that account could not reach
because a folder above it is closed (/root, mostly) is shown to it in a mount namespace of its own:
no folder of a person gets other rights. tests/workers.py decides which tests run as whom.

    python -m tests.ordinary_account        makes the account where there is none and we are root
"""

from __future__ import annotations

import compileall
import ctypes
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

NAME = "peloton-tests"
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000
"""Of unshare(2) and mount(2)."""
PR_SET_DUMPABLE = 4
"""Of prctl(2)."""
TRIAL_S_MAX = 60.0
CHECKOUT = Path(__file__).resolve().parent.parent
TRIAL = "import grpc, pytest, tests.conftest, peloton.processes.minicluster"
"""What an account can do that reaches the checkout, its .venv and the interpreter of that."""


class NoOrdinaryAccount(Exception):
    """Tests cannot run as another account here; the text says why."""


def make() -> None:
    """See to it that root has the account, and that it finds compiled what it imports; nobody else
    needs it. Raises NoOrdinaryAccount."""
    if os.geteuid() != 0:
        return
    _open_bytecode(CHECKOUT / "peloton")
    if _entry() is not None:
        return
    words = ["useradd", "--system", "--user-group", "--no-create-home",
             "--home-dir", "/nonexistent", "--shell", "/bin/sh", NAME]  # fmt: skip
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NoOrdinaryAccount(f"there is no account {NAME}, and no useradd: {error}") from error
    if _entry() is None:
        raise NoOrdinaryAccount(f"useradd has made no account {NAME}: {done.stderr.strip()}")


def _open_bytecode(folder: Path) -> None:
    """Compile what is not. A keeper writes it for its own account alone, and each one of another
    account would compile all of it again."""
    for cache in folder.rglob("__pycache__"):
        if not stat.S_IMODE(cache.stat().st_mode) & stat.S_IXOTH:
            shutil.rmtree(cache, ignore_errors=True)
    compileall.compile_dir(folder, quiet=2)


def why_not(shown: Sequence[Path]) -> str:
    """Why no test can run as the account here; empty if it can. Tried in a process of its own."""
    if _entry() is None:
        return f"there is no account {NAME}, which script/test makes"
    words = [sys.executable, "-c", _TRY, *map(str, shown)]
    try:
        done = subprocess.run(
            words, cwd=CHECKOUT, capture_output=True, text=True, timeout=TRIAL_S_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{NAME} could not import the tests within {TRIAL_S_MAX:.0f} s"
    return "" if done.returncode == 0 else (done.stderr.strip() or "?").splitlines()[-1]


_TRY = f"""
import subprocess, sys
from pathlib import Path
from tests.ordinary_account import become
become([Path(one) for one in sys.argv[1:]], home=Path("/tmp"))
sys.exit(subprocess.run([sys.executable, "-c", {TRIAL!r}]).returncode)
"""


def needed() -> list[Path]:
    """What the account must reach: the checkout, and the interpreter with its library."""
    return [CHECKOUT, Path(sys.prefix), Path(sys.base_prefix)]


def become(shown: Sequence[Path], *, home: Path, owned: Sequence[Path] = ()) -> None:
    """Be the account from now on; the folders `owned` become its.

    Raises NoOrdinaryAccount, OSError.
    """
    entry = _entry()
    if entry is None:
        raise NoOrdinaryAccount(f"there is no account {NAME}")
    reached = [path.resolve() for path in (*needed(), *shown) if path.exists()]
    temporary = tempfile.gettempdir()
    _show(reached)
    for folder in owned:
        os.chown(folder, entry.pw_uid, entry.pw_gid)
    os.setgroups([])
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
    # Who changes its user cannot read what /proc says of itself until then.
    if ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0):
        raise OSError("prctl(PR_SET_DUMPABLE)")
    for path in reached:
        if not os.access(path, os.R_OK | os.X_OK):
            raise NoOrdinaryAccount(f"{NAME} cannot read {path}")
    if not os.access(temporary, os.R_OK | os.W_OK | os.X_OK):
        raise NoOrdinaryAccount(f"{NAME} cannot write to {temporary} (TMPDIR)")
    os.environ.update(HOME=str(home), USER=NAME, LOGNAME=NAME)
    for name in [name for name in os.environ if name.startswith("XDG_") or name == "MAIL"]:
        del os.environ[name]


def _entry() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(NAME)
    except KeyError:
        return None


def _show(paths: Sequence[Path]) -> None:
    """Let others pass the closed folders above these, in a mount namespace of this process."""
    closed: dict[Path, list[Path]] = {}
    for path in dict.fromkeys(paths):
        for above in reversed(path.parents):
            if not stat.S_IMODE(above.stat().st_mode) & stat.S_IXOTH:
                closed.setdefault(above, []).append(path)
                break
    if not closed:
        return
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: object) -> None:
        if getattr(libc, name)(*arguments):
            error = os.strerror(ctypes.get_errno())
            raise NoOrdinaryAccount(f"{' and '.join(map(str, closed))} is closed: {name}: {error}")

    def mount(source: str, target: str, *, kind: str = "", flags: int = 0, data: str = "") -> None:
        call("mount", source.encode(), target.encode(), kind.encode(), flags, data.encode())

    here, mask = os.getcwd(), os.umask(0o022)
    call("unshare", CLONE_NEWNS)
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    for folder, inside in closed.items():
        # Below the new file system the trees have no names any more: descriptors keep them.
        held = {path: os.open(path, os.O_PATH) for path in inside}
        mount("tmpfs", str(folder), kind="tmpfs", data="mode=755")
        for path, tree in held.items():
            if not path.exists():  # it is within another that has been shown
                path.mkdir(parents=True)
                mount(f"/proc/self/fd/{tree}", str(path), flags=MS_BIND | MS_REC)
            os.close(tree)
    os.umask(mask)
    os.chdir(here)


if __name__ == "__main__":
    try:
        make()
    except NoOrdinaryAccount as error:  # the tests run as root then, and say so too
        print(f"warning: {error}", file=sys.stderr)
