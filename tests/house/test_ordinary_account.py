"""Tests of whole programs run as an ordinary account if the suite is root.

A scheduler is given nodes that only write down what they are sent.
"""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import ordinary_account, workers

E2E = [f"tests/e2e/test_a.py::test_{number}" for number in range(5)]
KEEPER = [f"tests/backends/test_b.py::test_{number}" for number in range(5)]
ROOTS = ["tests/e2e/test_a.py::test_mount", "tests/backends/test_b.py::test_groups"]
REST = [f"tests/gateway/test_c{number}.py::test_it" for number in range(5)]
PURE = [f"tests/core/test_d.py::test_{number}" for number in range(20)]
ALL = [*E2E, *KEEPER, *ROOTS, *REST, *PURE]


class Node:
    """A worker that runs nothing."""

    def __init__(self, name: str, *, ordinary: bool) -> None:
        self.gateway = SimpleNamespace(id=name, spec=SimpleNamespace(ordinary=ordinary))
        self.shutting_down = False
        self.waiting: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        assert not self.shutting_down
        self.waiting += indices

    def shutdown(self) -> None:
        self.shutting_down = True


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What makes a scheduler and its nodes, of which each has collected these tests."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "needs-root.json").write_text(json.dumps(ROOTS))

    def begin(tests: list[str], *, divided: bool = True) -> tuple[Any, list[Node]]:
        stash = pytest.Stash()
        stash[workers._WHY_NOT] = "" if divided else "no such account"
        tx = ["popen"] * 4
        config = SimpleNamespace(stash=stash, getvalue=lambda name: tx, option=SimpleNamespace())
        scheduler = workers.pytest_xdist_make_scheduler(config, None)  # type: ignore[arg-type]
        nodes = [Node(f"gw{number}", ordinary=divided and number < 2) for number in range(4)]
        for node in nodes:
            join(scheduler, node, tests)
        scheduler.schedule()
        return scheduler, nodes

    return begin


def join(scheduler: Any, node: Node, tests: list[str]) -> None:
    scheduler.add_node(node)
    scheduler.add_node_collection(node, tests)


def played(scheduler: Any, nodes: list[Node], tests: list[str]) -> dict[str, list[str]]:
    """What each node has run when none has anything to run."""
    ran: dict[str, list[str]] = {node.gateway.id: [] for node in nodes}
    while any(node.waiting for node in nodes):
        for node in nodes:
            if node.waiting:
                index = node.waiting.pop(0)
                ran[node.gateway.id].append(tests[index])
                scheduler.mark_test_complete(node, index)
    assert not scheduler.has_pending and all(node.shutting_down for node in nodes)
    return ran


def test_each_test_runs_once_and_as_whom_it_is_for(begun: Any) -> None:
    scheduler, nodes = begun(ALL)
    ran = played(scheduler, nodes, ALL)
    ordinary, root = {*ran["gw0"], *ran["gw1"]}, {*ran["gw2"], *ran["gw3"]}
    assert sorted(test for tests in ran.values() for test in tests) == sorted(ALL)
    assert {*E2E, *KEEPER} <= ordinary <= {*E2E, *KEEPER, *PURE}
    assert {*ROOTS, *REST} <= root <= {*ROOTS, *REST, *PURE}
    assert ordinary & {*PURE}, "who is free takes what anybody may run"


@pytest.mark.parametrize("tests", [E2E[:1], ROOTS[:1], REST[:1], []], ids=len)
def test_fewer_tests_than_workers_are_run_as_well(begun: Any, tests: list[str]) -> None:
    scheduler, nodes = begun(tests)
    if tests:
        assert sum(played(scheduler, nodes, tests).values(), []) == tests


def test_where_the_account_cannot_be_had_all_run_all(begun: Any) -> None:
    scheduler, nodes = begun(ALL, divided=False)
    ran = played(scheduler, nodes, ALL)
    assert sorted(sum(ran.values(), [])) == sorted(ALL)


def test_what_a_worker_leaves_that_crashed_goes_to_one_like_it(begun: Any) -> None:
    scheduler, nodes = begun(ALL)
    crashed = nodes.pop(0)
    left = [ALL[index] for index in crashed.waiting]
    assert scheduler.remove_node(crashed) == left[0]
    ran = played(scheduler, nodes, ALL)
    assert {*left} <= {*ran["gw1"]}


# ---- the account itself ----

READS = """
import pathlib, sys
from tests.ordinary_account import become
top = pathlib.Path(sys.argv[1])
become([top / "closed" / "shown"], home=top)
import os, subprocess
assert os.geteuid() and os.getgroups() == [] and os.environ["HOME"] == sys.argv[1]
assert open("/proc/self/environ").read()
child = subprocess.run(["cat", top / "closed" / "shown" / "file"], capture_output=True, text=True)
print(child.stdout, sorted(path.name for path in (top / "closed").iterdir()))
"""


@pytest.mark.needs_root("to become another account")
def test_it_gets_to_what_it_needs_below_a_closed_folder_and_to_nothing_else(
    tmp_path: Path,
) -> None:
    why_not = ordinary_account.why_not([])
    if why_not:
        pytest.skip(why_not)
    top = tmp_path / "top"
    closed = top / "closed"
    (closed / "shown").mkdir(parents=True)
    (closed / "shown" / "file").write_text("seen\n")
    for each in (top, closed / "shown", closed / "shown" / "file"):
        each.chmod(0o755)  # whatever the umask
    (closed / "secret").write_text("unseen\n")
    closed.chmod(0o700)
    words = [sys.executable, "-c", READS, str(top)]
    done = subprocess.run(words, cwd=workers.ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "seen\n ['shown']\n"), done.stderr
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@pytest.mark.needs_root("to become another account")
def test_why_it_cannot_read_the_checkout_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "site-packages"
    closed.mkdir(mode=0o700)
    monkeypatch.setenv("PYTHONPATH", str(closed))
    monkeypatch.setattr(ordinary_account, "TRIAL", "x")


@pytest.mark.needs_root("to become another account")
def test_what_it_cannot_read_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "shown"
    closed.mkdir(mode=0o700)
    with_it = ordinary_account.why_not([closed])
    if "there is no account" not in with_it:
        assert with_it.endswith(f"{ordinary_account.NAME} cannot read {closed}")
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700
