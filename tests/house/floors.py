"""Rules about who may import what, as far as they hang on file names or on outside packages.

`.importlinter` has the floors themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.house.tree import ROOT, Module, imports, under

# All a kind has to say to another: its messages, and the values that they carry: specs and configs,
# names, states (`stages.py`), and how what a message wants is read. Modules that are called after
# one, such as `hold_messages.py`, are of the same sort.
SHARED_FILE = re.compile(r"(\w+_)?(messages|spec|config|names)|stages|conditions|filters")
# What a face of the daemon may read of a kind besides: the facts that are its change feed, and what
# is told to people. Plans and checks ahead of a call are made by the functions that decide, on
# copies of the state.
TOLD_FILE = re.compile(
    r"(\w+_)?(facts|view)|usage|finding"
    r"|configs|copies|cron|planning|pool_report|reasons|rules|strategies"
)
# A host answers a query for it with its state, the ledger in it: what an answer has to be for good
# these are as well.
ANSWERS = ("peloton.actors.host.state", "peloton.actors.host.ledger")
SERVED_BY = ("peloton/gateway/",)

# What stands beside the folders of the kinds is no kind's: resources, pauses, mentions.
VALUES = tuple(
    f"peloton.actors.{file.stem}"
    for file in sorted((ROOT / "peloton" / "actors").glob("*.py"))
    if file.stem != "__init__"
)
# A parent whose index is derived from its children's states, where the two share a shard, may be
# named here with those children; it may then read their state.py and views as well: a slice counts
# its tasks by state, the tree of pools sums its lots, an inventory its hosts. What they would say
# in messages instead could drift from what they are.
FOLLOWS: dict[str, tuple[str, ...]] = {
    "peloton.actors.job.slice": ("peloton.actors.task",),
    "peloton.actors.respool": ("peloton.actors.respool.lot",),
    "peloton.actors.host.inventory": ("peloton.actors.host",),
}

KIND_PACKAGES = (
    *sorted(
        str(file.parent.relative_to(ROOT)).replace("/", ".")
        for file in (ROOT / "peloton" / "actors").rglob("kind.py")
    ),
    "peloton.placement",
)
"""Whoever has a kind.py is one: a list by hand would forget the next."""

VALUE_FOLDERS = ("peloton/actors/", "peloton/placement/", "peloton/runtime/")
GRPC_FOLDERS = (
    "peloton/gateway/",
    "peloton/sdk/",
    "peloton/chaos/nemesis/",  # stands outside, as clients and operators do
    "peloton/testing/",  # so do tests; and it carries calls in their own process
    "peloton/runtime/adapters/grpc_",
)
FACES = (
    "peloton/cli/",
    "peloton/__main__.py",
    "peloton/processes/",
    "peloton/commands/",
)
# Each package in its own adapter, backend or shell: replacing one then means replacing one file.
HOMES: dict[str, tuple[str, ...]] = {
    "pykka": ("peloton/runtime/shells/", "peloton/runtime/simulation/"),
    "msgspec": (
        *VALUE_FOLDERS,
        "peloton/settings/",
        "peloton/sdk/",
        "peloton/backends/",
    ),
    "immutables": VALUE_FOLDERS,
    "numpy": ("peloton/placement/",),
    "sqlite3": ("peloton/runtime/adapters/sqlite",),
    "cassandra": ("peloton/runtime/adapters/cassandra", "peloton/chaos/nemesis/"),
    "kazoo": (
        "peloton/runtime/adapters/zookeeper",
        "peloton/chaos/nemesis/",
        "peloton/backends/mesos/masters/agent_book.py",  # where the masters are
        "peloton/sdk/zookeeper.py",  # clients find their cluster in the same place
    ),
    "h11": ("peloton/http_client.py",),
    "cryptography": ("peloton/runtime/adapters/secret", "peloton/settings/certificate_dates.py"),
    "cloudpickle": ("peloton/sdk/executor/packing.py",),
    "click": FACES,
    "rich": FACES,
    "grpc": GRPC_FOLDERS,
    "grpc_health": GRPC_FOLDERS,
    "grpc_reflection": GRPC_FOLDERS,
    "grpc_status": GRPC_FOLDERS,
    "google.rpc": GRPC_FOLDERS,
    "google.protobuf": GRPC_FOLDERS,
    "peloton.api": GRPC_FOLDERS,
    "peloton.private": GRPC_FOLDERS,
    "peloton.ops": GRPC_FOLDERS,
    "peloton.exchange": GRPC_FOLDERS,
    "pytest": ("peloton/testing/",),
    "hypothesis": ("peloton/testing/strategies.py",),
    "prometheus_client": ("peloton/gateway/", "peloton/runtime/shells/", "peloton/assembly/daemon"),
}


def homes(module: Module) -> Iterator[str]:
    """Whether each outside package stays where it lives."""
    seen = set()
    for node, name in imports(module):
        for package, folders in HOMES.items():
            stranger = under(name, package) and not module.path.startswith(folders)
            if stranger and (node.lineno, package) not in seen:
                seen.add((node.lineno, package))
                words = f"imports {package}, which lives in {', '.join(folders)}"
                yield module.at(node, f"{words}: ask a module there for what you need of it")


def kind_of(path: str) -> str | None:
    """The kind that a module belongs to, be it in a room of it; placement counts as one."""
    folder = own = path.rpartition("/")[0].replace("/", ".")
    if under(folder, "peloton.placement"):
        return "peloton.placement"
    while folder.startswith("peloton.actors."):
        if folder in KIND_PACKAGES:
            return folder
        folder = folder.rpartition(".")[0]
    return own if own.startswith("peloton.actors.") else None


def kinds(module: Module) -> Iterator[str]:
    """Whether a kind reads what another says to it, and nothing more."""
    mine = kind_of(module.path)
    values = module.path.removesuffix(".py").replace("/", ".") in VALUES
    if mine is None and not values:
        return
    seen = set()
    for node, name in imports(module):
        if node.lineno in seen or not under(name, "peloton.actors", "peloton.placement"):
            continue
        if under(name, *VALUES) or name in ("peloton.actors", "peloton.placement"):
            continue
        if mine is not None and allowed(mine, name):
            continue
        seen.add(node.lineno)
        words = f"reads {name}: of another kind only its messages and their values may be read"
        yield module.at(node, f"{words}, so send a message")


def faces(module: Module) -> Iterator[str]:
    """Whether what serves clients reads of the kinds what they say, and not how they decide."""
    if not module.path.startswith(SERVED_BY):
        return
    seen = set()
    for node, name in imports(module):
        inside = under(name, "peloton.actors", "peloton.placement")
        outside = not inside or under(name, *VALUES, *ANSWERS)
        if outside or node.lineno in seen or name in ("peloton.actors", *KIND_PACKAGES):
            continue
        if any(SHARED_FILE.fullmatch(w) or TOLD_FILE.fullmatch(w) for w in name.split(".")):
            continue
        seen.add(node.lineno)
        words = f"reads {name}: a call reads messages, specs, views and facts of a kind"
        yield module.at(node, f"{words}, so move what it needs to one of these")


def allowed(mine: str, name: str) -> bool:
    words = name.split(".")
    if any(SHARED_FILE.fullmatch(word) for word in words):
        return True
    for child in FOLLOWS.get(mine, ()):
        if under(name, child) and re.fullmatch(r"state|(\w+_)?view", words[child.count(".") + 1]):
            return True
    if not under(name, mine):
        # `from peloton.actors.task import messages` names the package as well as the module.
        return name in KIND_PACKAGES
    nested = [kind for kind in KIND_PACKAGES if under(kind, mine) and kind != mine]
    return not any(under(name, kind) and name != kind for kind in nested)
