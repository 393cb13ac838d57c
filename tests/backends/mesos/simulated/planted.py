"""Mistakes planted into the conversation, each of which the plays have to find.

Turns a text of one function into another one, for the time of a `with`.

    python -m tests.backends.mesos.simulated.planted        prints which seed finds which
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

from peloton.backends.mesos import kills, lists, offer_book, run_table
from peloton.backends.mesos.conversation import Conversation
from peloton.backends.mesos.reconciliation import Reconciliation
from peloton.backends.mesos.runs.words import Bundle
from tests.backends.mesos.simulated.acts import failure
from tests.backends.mesos.simulated.scenario import drawn

SEEDS_MAX = 150
"""A mistake that so many plays do not find is one that they are blind to."""


class Planted(NamedTuple):
    """One mistake: `old` occurs once in the function of this name. `seed`: one that finds it."""

    of: type
    name: str
    old: str
    new: str
    seed: int = 0


PLANTED = {
    "an end is acknowledged at once": Planted(
        Conversation, "_updated", "and phase is not RunAt.ENDED:", ":"
    ),
    "a repeat of a launch is an end": Planted(
        Conversation,
        "_updated",
        "        if is_repeat_of_a_launch(status):",
        "        if False:",
        85,
    ),
    "the master's word of an end is believed at once": Planted(
        Conversation, "_updated", "elif is_hearsay(status) and", "elif False and", 18
    ),
    "what is forgotten stays": Planted(
        run_table.AgentRuns, "forget", "self.runs.pop(name)", "run"
    ),
    "what waits is kept over an outage": Planted(
        run_table.AgentRuns, "cut_off", "del self.runs[name]", "pass", 4
    ),
    "what is yet to begin elsewhere is listed as if it were here": Planted(
        run_table.AgentRuns, "listed", 'if run.at in ("", incarnation) else asked_at', "or 0.0", 391
    ),
    "a list is given at once": Planted(
        lists.Lists, "asked", "        if asked:", "        if not asked:"
    ),
    "a deaf executor is not shut down": Planted(
        kills.Kills, "_overdue", "if kill.executor:", "if 0:"
    ),
    "an end does not end the kills": Planted(
        kills.Kills, "over", "self._open.pop(task, None)", "pass"
    ),
    "offers are kept": Planted(
        offer_book.OfferBook, "due", "is not None and wake_at <= now", "is None and 0"
    ),
    "resources are taken twice": Planted(Bundle, "take", "self._left = left\n", "pass\n", 3),
    "nobody asks for what comes with an agent": Planted(
        Reconciliation, "soon", "now + SOON_S < self._next_at", "False", 22
    ),
}  # fmt: skip


@contextlib.contextmanager
def planted(mistake: Planted) -> Iterator[None]:
    """The program has this mistake."""
    right = inspect.getattr_static(mistake.of, mistake.name)
    source = textwrap.dedent(inspect.getsource(right))
    assert source.count(mistake.old) == 1 or mistake.old.startswith(" "), mistake
    old, new = mistake.old.lstrip(" "), mistake.new.lstrip(" ")
    assert source.count(old) == 1, f"{old!r} is there {source.count(old)} times"
    scope: dict[str, Any] = {}
    lines = f"from __future__ import annotations\n{source.replace(old, new)}"
    exec(compile(lines, "planted", "exec"), right.__globals__, scope)  # noqa: S102
    setattr(mistake.of, mistake.name, scope[mistake.name])
    try:
        yield
    finally:
        setattr(mistake.of, mistake.name, right)


def search(mistake: Planted) -> tuple[int, str] | None:
    """A seed that finds it, that which is known at first, and what that finds."""
    with planted(mistake):
        for seed in (mistake.seed, *range(SEEDS_MAX)):
            found = failure(drawn(seed))
            if found is not None:
                return seed, str(found)
    return None


def main() -> None:
    """The table."""
    for name in sys.argv[1:] or PLANTED:
        print(f"{name}: {search(PLANTED[name])}", flush=True)


if __name__ == "__main__":
    main()
