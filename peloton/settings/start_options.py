"""The options of a start that a config file cannot have, and the names of settings in its errors.

`peloton daemon` starts with the defaults; `peloton minicluster` brings its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from peloton.settings.config import Address


class SettingNames(NamedTuple):
    """The names of settings in texts for people: the fields of a file or the options of a command.

    The last six are remedies: for a folder that belongs to something else (`{known}` is the backend
    that a data folder was created with) or is a copy, for a busy port, and for a journal that is
    not the newest or is missing.
    """

    process: str = "daemon"
    grpc: str = "listen.grpc"
    http: str = "listen.http"
    data_folder: str = "journal.sqlite.folder"
    keeper_folder: str = "backend.process.folder"
    backend: str = "backend"
    other_backend: str = "Start it with backend.{known}, or name another journal.sqlite.folder"
    other_keeper: str = (
        "Name another backend.process.folder; or, to end the runs there for good, start "
        "one daemon with --adopt-keeper"
    )
    copied: str = (
        "Start the original, or put it back in its place; or, also where it is gone for good, "
        "start this one with --adopt-copy: it becomes another cluster, and its running tasks LOST"
    )
    other_ports: str = "Stop it, or name other addresses in listen"
    rollback: str = (
        "Put the newest copy of it back; or start once with --accept-rollback, which gives up what "
        "is missing and kills the runs that the journal does not know"
    )
    no_journal: str = "Put the newest copy of it back, or name another journal.sqlite.folder"

    def listener(self, name: str) -> str:
        """Return the setting of an address of `listen`."""
        return {"grpc": self.grpc, "http": self.http}.get(name, f"listen.{name}")


class StartOptions(NamedTuple):
    """The options of one start.

    `adopt_keeper`, `adopt_copy` and `fresh` are orders of an operator: to empty the keeper folder
    of another cluster, to make a copied data folder another cluster, and to empty the data folder.
    With `all_or_nothing` the daemon serves clients only once it is ready, and does not start if
    that takes too long or a shard is damaged. `classic` are further addresses for gRPC, which may
    be busy. `stop_tasks` kills all tasks at the end. `accept_rollback`: go on with a journal that
    lacks what it had acknowledged. `default_pool`: the first start makes a pool of all hosts.
    """

    adopt_keeper: bool = False
    adopt_copy: bool = False
    fresh: bool = False
    all_or_nothing: bool = False
    stop_tasks: bool = False
    accept_rollback: bool = False
    classic: Sequence[Address] = ()
    names: SettingNames = SettingNames()
    default_pool: bool = False


STANDARD_START = StartOptions()
"""That of `peloton daemon` without options."""
