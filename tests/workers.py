"""A pytest plug-in: which worker runs which test, and as which user.

Where the suite is root and has several workers, half of them are an ordinary account: they run
`tests/e2e` and `tests/backends`, whose programs people run as themselves, but for what is marked
`needs_root`. Without workers the process is that account if nothing else was selected. Whoever is
not root runs all of them as they are.
"""

from __future__ import annotations

import json
import os
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from tests import ordinary_account
from tests.servers.cache import CACHE_VARIABLE, cache_folder

ROOT = Path(__file__).resolve().parent.parent
# With several workers, tests of one group run in one of them, one after the other. Each process has
# a Cassandra and a ZooKeeper for those that ask; whoever is missing here starts a second one, which
# costs seconds and no more. The house rules share what they have parsed.
GROUPS = {
    "cassandra": (
        "tests/adapters/cassandra/test_cassandra",
        "tests/adapters/test_daemon_servers.py",
        "tests/adapters/test_fleet_",
        "tests/adapters/mesos/test_mesos_fleet.py",
        "tests/adapters/mesos/test_mesos_takeover.py",
        "tests/bench/",
        "tests/contracts/test_journal",
        "tests/contracts/test_round",
        "tests/contracts/test_secret_store.py",
        "tests/testing/test_fleet_servers.py",
    ),
    "zookeeper": (
        "tests/adapters/mesos/test_leading_master.py",
        "tests/adapters/mesos/test_mesos_servers.py",
        "tests/adapters/mesos/test_mesos_standby.py",
        "tests/adapters/mesos/test_mesos_tls.py",
        "tests/adapters/zookeeper/test_zookeeper",
        "tests/cli/test_features.py",
        "tests/cli/test_preflight.py",
        "tests/cli/test_search.py",
        "tests/contracts/test_membership.py",
    ),
    "house": ("tests/house/",),
}
# Here the tests of a file share what is costly to begin: a cluster, keys, a connection.
BY_FILE = ("tests/adapters/", "tests/contracts/", "tests/e2e/", "tests/gateway/")
ORDINARY = ("tests/e2e/", "tests/backends/")
"""What runs as the ordinary account, but for what needs root."""
# With several workers the long ones begin first, so that none is left alone at the end. These touch
# neither files nor processes of others, so that it does not matter who runs them.
ANYBODY_LONG = ("tests/worlds/", "tests/model/")
ANYBODY = ("tests/actors/", "tests/core/", "tests/placement/", "tests/transcripts/")
LONG = ANYBODY_LONG + ORDINARY
ORDERS = {False: ("root", "long", "others", "any"), True: ("ordinary", "long", "any")}
"""Which kinds of tests a worker takes, by whether it is the ordinary account."""
AS_ROOT = " as root"
"""Behind the name of a group of which only root can be the account."""
HALF = 2
"""At least so many workers must there be, so that one of them can be the account."""
_WHY_NOT = pytest.StashKey[str]()
"""Why the account does not run tests though we are root and there are some for it; else empty."""


# ---- as whom ----


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Become the account, if that is what this process is for."""
    if os.geteuid() != 0:
        return
    given = getattr(config, "workerinput", None)
    if given is not None:
        if given["ordinary"]:
            _become(config)
        return
    many = len(config.getoption("tx", None) or ()) >= HALF
    inside, around = _selected(config)
    if not inside and not (many and around):
        return
    why_not = ordinary_account.why_not([cache_folder()])
    config.stash[_WHY_NOT] = why_not
    if why_not:
        text = f"{' and '.join(ORDINARY)} run as root: {why_not}"
        config.issue_config_time_warning(pytest.PytestWarning(text), stacklevel=2)
    elif not many:
        _become(config)


def _selected(config: pytest.Config) -> tuple[bool, bool]:
    """Whether all that is selected is for the account, and whether something is."""
    ours = [ROOT / folder for folder in ORDINARY]
    words = (argument.partition("::")[0] for argument in config.args)
    paths = [(config.invocation_params.dir / word).resolve() for word in words]
    inside = [any(path.is_relative_to(folder) for folder in ours) for path in paths]
    above = [any(folder.is_relative_to(path) for folder in ours) for path in paths]
    return all(inside), any(inside) or any(above)


def _become(config: pytest.Config) -> None:
    """With a home, caches and temporary files of its own; those of the checkout are root's."""
    state, cache = Path(os.environ["XDG_STATE_HOME"]), cache_folder()
    home = state / "home"
    home.mkdir()
    ordinary_account.become([cache], home=home, owned=(state, home))
    os.environ["XDG_STATE_HOME"] = str(state)
    os.environ[CACHE_VARIABLE] = str(cache)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(home / "hypothesis")
    config._inicache["cache_dir"] = str(home / "pytest")
    config.option.basetemp = None


def pytest_report_header(config: pytest.Config) -> str:
    if config.stash.get(_WHY_NOT, "?") == "":
        return f"{' and '.join(ORDINARY)} run as {ordinary_account.NAME}, where root is not needed"
    return ""


def pytest_runtest_setup(item: pytest.Item) -> None:
    mark = item.get_closest_marker("needs_root")
    if mark is not None and not mark.kwargs.get("possible", os.geteuid() == 0):
        who = "not here" if os.geteuid() == 0 else "needs root"
        pytest.skip(f"{who}: {mark.args[0]}")


# ---- which worker ----


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """Half of the workers are the account, or all but one if there is nothing but its tests.

    A worker that replaces another has the spec of that.
    """
    share = 0
    if config.stash.get(_WHY_NOT, "?") == "":
        share = len(specs) - 1 if _selected(config)[0] else len(specs) // HALF
    for number, spec in enumerate(specs):
        spec.ordinary = number < share


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["ordinary"] = node.gateway.spec.ordinary
    node.workerinput["needs_root"] = str(_needs_root_file())


def _needs_root_file() -> Path:
    """Where workers say which tests are marked: they collect, and have no other way to tell."""
    return Path(os.environ["XDG_STATE_HOME"], "needs-root.json")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not item.nodeid.startswith(LONG))


def pytest_collection_finish(session: pytest.Session) -> None:
    given = getattr(session.config, "workerinput", None)
    if given is not None and os.geteuid() == 0:
        marked = [item.nodeid for item in session.items if item.get_closest_marker("needs_root")]
        part = Path(f"{given['needs_root']}.{os.getpid()}")
        part.write_text(json.dumps(marked))
        part.replace(given["needs_root"])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests of a group go to one worker; the others to whoever is free and may run them."""
    from xdist.scheduler import LoadScopeScheduling

    class Grouped(LoadScopeScheduling):
        """`workqueue` holds the groups that wait; `_waiting` their names by kind, in order."""

        def __init__(self) -> None:
            super().__init__(config, log)
            self._divided = config.stash.get(_WHY_NOT, "?") == ""
            self._needs_root: frozenset[str] = frozenset()
            self._waiting: dict[str, deque[str]] = {}

        def schedule(self) -> None:
            if self.collection is not None:
                super().schedule()
                return
            if not self._check_nodes_have_same_collection():
                return
            if self._divided:
                self._needs_root = frozenset(json.loads(_needs_root_file().read_text()))
            self.collection = list(next(iter(self.registered_collections.values())))
            for nodeid in self.collection:
                scope = self._split_scope(nodeid)
                if scope not in self.workqueue:
                    self._waiting.setdefault(self._kind(scope), deque()).append(scope)
                self.workqueue.setdefault(scope, {})[nodeid] = False
            for _ in range(2):  # each begins with two, so that it knows what comes next
                for node in self.nodes:
                    self._reschedule(node)

        def remove_node(self, node: Any) -> str | None:
            lost = self.assigned_work[node]
            if self._pending_of(lost):  # it crashed: they are waiting again
                for scope in lost:
                    self._waiting.setdefault(self._kind(scope), deque()).appendleft(scope)
            crashed: str | None = super().remove_node(node)
            return crashed

        def _reschedule(self, node: Any) -> None:
            if self.workqueue and not node.shutting_down and self._next(node) is None:
                node.shutdown()
            else:
                super()._reschedule(node)

        def _assign_work_unit(self, node: Any) -> None:
            kind = self._next(node)
            assert kind is not None
            self.workqueue.move_to_end(self._waiting[kind].popleft(), last=False)
            super()._assign_work_unit(node)

        def _next(self, node: Any) -> str | None:
            order = ORDERS[node.gateway.spec.ordinary]
            return next((kind for kind in order if self._waiting.get(kind)), None)

        def _split_scope(self, nodeid: str) -> str:
            scope = _group(nodeid) or nodeid
            return scope + AS_ROOT if nodeid in self._needs_root else scope

        def _kind(self, scope: str) -> str:
            if scope.startswith(ORDINARY) and self._divided:
                return "root" if scope.endswith(AS_ROOT) else "ordinary"
            if scope.startswith(LONG):
                return "long"
            return "any" if scope.startswith(ANYBODY) else "others"

    return Grouped()


def _group(nodeid: str) -> str:
    alone = nodeid.partition("::")[0] if nodeid.startswith(BY_FILE) else ""
    return next((name for name, paths in GROUPS.items() if nodeid.startswith(paths)), alone)
