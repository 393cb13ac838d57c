"""A later version of the program: this one with a few fields more, which it really uses.

Turns the package into a copy with a field added at the end of a message between two kinds, of a
message to placers, of a fact, of the state of a crowd and of the state of a cell; each is set to
something other than its default. It must not be kinder than a real release: the marks differ from
member to member, so members that were alike to the earlier version are not to the later one.

A text that is not found any more is an error: a copy without its fields would prove nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import peloton

SAID = "deltas with a mark"
"""What a daemon of the later version writes to its log when a placer heard one of another."""

CHANGES = (
    # A host tells the tasks that end its own name, and they keep it.
    (
        "actors/task/messages.py",
        "    started_at: float | None = None\n\n\nclass RunGone",
        '    started_at: float | None = None\n    mark: str = ""\n\n\nclass RunGone',
    ),
    (
        "actors/host/ends.py",
        "return t.Ended(some.run, outcome, ended_at, started_at)",
        "return t.Ended(some.run, outcome, ended_at, started_at, str(at.key))",
    ),
    (
        "actors/task/decide.py",
        "(f.RunEnded(outcome, message.at),)",
        "(f.RunEnded(outcome, message.at, message.mark),)",
    ),
    (
        "actors/task/facts.py",
        "    outcome: RunOutcome\n    at: float | None = None\n",
        '    outcome: RunOutcome\n    at: float | None = None\n    mark: str = ""\n',
    ),
    (
        "actors/task/state.py",
        "    unschedulable: bool = False  # no host could run it: it requests no admission\n",
        "    unschedulable: bool = False  # no host could run it: it requests no admission\n"
        '    mark: str = ""\n',
    ),
    (
        "actors/task/state.py",
        "f.RunEnded: _ended,",
        "f.RunEnded: lambda task, fact: replace(_ended(task, fact), mark=fact.mark),",
    ),
    # A host counts what it ever accepted.
    (
        "actors/host/state.py",
        '    keeper_at: str = ""  # its folder',
        '    keeper_at: str = ""\n    accepted: int = 0  # its folder',
    ),
    (
        "actors/host/state.py",
        "    need, runs = fact.spec.resources, host.runs\n",
        "    need, runs = fact.spec.resources, host.runs\n"
        "    host = replace(host, accepted=host.accepted + len(fact.members))\n",
    ),
    # Inventories mark what they tell placers.
    (
        "placement/messages.py",
        "    gone: tuple[Key, ...] = ()  # hosts that were deleted;",
        '    gone: tuple[Key, ...] = ()\n    mark: str = ""  # hosts that were deleted;',
    ),
    (
        "actors/host/inventory/state.py",
        "HostDeltas(inventory, self._sequence, summaries, self._snapshot, gone)",
        'HostDeltas(inventory, self._sequence, summaries, self._snapshot, gone, mark="later")',
    ),
    (
        "assembly/placer_service.py",
        "        mail = [(envelope.sender, envelope.message) for envelope in envelopes]\n",
        "        mail = [(envelope.sender, envelope.message) for envelope in envelopes]\n"
        '        if any(getattr(message, "mark", "") for _, message in mail):\n'
        "            import sys\n\n"
        f'            print("{SAID}", file=sys.stderr, flush=True)\n',
    ),
)


def later_copy(folder: Path) -> Path:
    """A copy of the package below `folder`, changed; the folder that a daemon of it starts in."""
    source = Path(peloton.__file__).parent
    target = folder / "peloton"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in CHANGES:
        text = (target / name).read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise ValueError(f"{name}: {text.count(old)} times, not once: {old!r}")
        (target / name).write_text(text.replace(old, new), encoding="utf-8")
    return folder
