"""Which variables of a caller a command gets on the same machine, and misses on another."""

from __future__ import annotations

import pytest

from peloton.sdk.caller_environment import missed, taken

SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HERE = {
    "PATH": f"/home/a/venv/bin:{SYSTEM}", "VIRTUAL_ENV": "/home/a/venv", "CONDA_PREFIX": "/c",
    "LD_LIBRARY_PATH": "/cuda", "PYTHONPATH": "/src", "LC_ALL": "C.UTF-8",
}  # fmt: skip
OTHERS = {"HOME": "/home/a", "TOKEN": "t", "CONDA_TOKEN": "t", "LANG": "", "PYTHONHASHSEED": "0"}
OF_THE_SHELL = {
    "PWD": "/", "_": "/bin/x", "SHLVL": "2", "PELOTON_RUN_ID": "r", "MESOS_SANDBOX": "/s",
}  # fmt: skip


def test_what_programs_are_found_by_is_taken() -> None:
    assert taken(HERE | OTHERS | OF_THE_SHELL) == HERE


def test_every_variable_is_what_is_not_of_the_shell() -> None:
    assert taken(HERE | OTHERS | OF_THE_SHELL, every=True) == HERE | OTHERS


@pytest.mark.parametrize("every", [False, True])
def test_what_is_no_text_stays(every: bool) -> None:
    assert taken({"PATH": "/a\udcff"}, every=every) == {}


def test_elsewhere_it_is_missed_what_another_machine_does_not_have_by_itself() -> None:
    assert missed({"PATH": SYSTEM, "LANG": "de_DE.UTF-8", "HOME": "/"}) == []
    assert missed(HERE | OTHERS) == sorted(HERE.keys() - {"LC_ALL"})
    assert missed({"PATH": SYSTEM, "HOME": "/", "_": "x"}, every=True) == ["HOME", "PATH"]
