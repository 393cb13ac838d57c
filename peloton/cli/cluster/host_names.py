"""Suggestions for mistyped names of hosts.

They are only printed, never used: a host that is taken down or forgotten is named in full.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from peloton.sdk.errors import NotFound, PelotonError

if TYPE_CHECKING:
    from peloton.sdk.client import Client


@contextmanager
def host_typed(peloton: Client, name: str) -> Iterator[None]:
    """Add suggestions to the answer that there is no such host."""
    try:
        yield
    except NotFound as error:
        meant = alike(name, [one.name for one in hosts_beside(peloton)])
        if meant:
            error.args = (f"{error}; did you mean {' or '.join(meant)}?",)
        raise


def alike(name: str, known: Sequence[str]) -> Sequence[str]:
    """Return the hosts whose own name this is, without the cluster's before it; else similar
    ones."""
    own = [one for one in known if one.endswith(f".{name}") or one.partition(".")[0] == name]
    return own[:3] or difflib.get_close_matches(name, known)


def hosts_beside(peloton: Client) -> Sequence[Any]:
    """Return the hosts as `peloton host list` has them, to complete an answer; none if they
    cannot be listed."""
    from peloton.sdk.defaults import known_hosts

    try:
        return tuple(known_hosts(peloton))
    except PelotonError:
        return ()
