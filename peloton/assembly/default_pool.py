"""The pool of a cluster that nobody has set up yet: `/default`, over all of its hosts.

The first start makes it, under an id that is always the same; a file in the data folder then
records that. A pool that was deleted is therefore not made again, and one that a client has changed
is left as it is; of any other the limit follows the capacity of the cluster. In a fleet it is not
used: the pools are the operator's.
"""

from __future__ import annotations

from concurrent.futures import Future, TimeoutError
from pathlib import Path

from peloton.actors.resources import Resources
from peloton.actors.respool.messages import (
    ROOT,
    CreatePool,
    GetPool,
    PoolConfig,
    UpdatePool,
    pool_key,
)
from peloton.runtime.adapters import private_folder
from peloton.runtime.adapters.claimed_folder import DEFAULT_POOL
from peloton.runtime.shells.region import Region
from peloton.runtime.vocabulary import Key, Message, Unavailable

NAME = "default"
POOL = pool_key(NAME)
ANSWER_S_MAX = 10.0


class DefaultPool:
    """Makes the pool, or adapts it. `folder` is the data folder."""

    def __init__(self, region: Region, folder: Path) -> None:
        self._region = region
        self._made = folder / DEFAULT_POOL

    def settle(self) -> bool:
        """Make or adapt the pool; return whether that is done. The hosts must be up."""
        limit = self._limit()
        if limit is None:
            return False
        wanted = PoolConfig(NAME, ROOT, Resources(), limit)
        if not self._made.exists():
            # Refused where the user has a pool of this name: it serves as well.
            if not self._answered(CreatePool(wanted)):
                return False
            with open(self._made, "w", encoding="utf-8", opener=private_folder.opener) as file:
                file.write(f"{POOL}\n")
            return True
        known = self._config(POOL)
        # What a client wrote is kept with the config as its bytes; ours has none.
        if known is None or known.raw or known.limit == limit:
            return True
        return self._answered(UpdatePool(wanted))

    def _limit(self) -> Resources | None:
        found = self._config(ROOT)
        return found.limit if found is not None else None

    def _config(self, pool: Key) -> PoolConfig | None:
        views = _result(self._region.ask(ROOT, GetPool(pool, config_only=True)))
        return views[0].config if isinstance(views, tuple) and views else None

    def _answered(self, command: Message) -> bool:
        """Return whether the pool answered, also with a refusal."""
        return not isinstance(_result(self._region.ask(POOL, command)), Unavailable)


def _result(answer: Future[object]) -> object:
    """Return the answer; Unavailable if none came in time."""
    try:
        return answer.result(ANSWER_S_MAX)
    except TimeoutError:
        return Unavailable(f"no answer within {ANSWER_S_MAX:g} s")
