"""A later version of the program: this one with a few fields more, which it really uses.

Turns the package into a copy with a field added at the end of a message between two kinds, of a
message to placers, of a fact, of the state of a crowd and of the state of a cell; each is set to
something other than its default. The marks differ from member to member, so members that were alike
to the earlier version are not to the later one, as with a real release.

A text that is not found any more is an error: a copy without its fields would prove nothing.
"""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import peloton

SAID = "deltas with a mark"
"""What a daemon of the later version writes to its log when a placer heard one of another."""

FIELDS = (
    ("actors/task/messages.py", "Ended", 'mark: str = ""'),
    ("actors/task/facts.py", "RunEnded", 'mark: str = ""'),
    ("actors/task/state.py", "Task", 'mark: str = ""'),
    ("actors/host/state.py", "Host", "accepted: int = 0"),
    ("placement/messages.py", "HostDeltas", 'mark: str = ""'),
)
"""Module, class and field. It comes last, as it must in a release: values are coded by place."""

CHANGES = (
    # A host tells the tasks that end its own name, and they keep it.
    (
        "actors/host/ends.py",
        "return t.Ended(some.run, outcome, ended_at, started_at)",
        "return t.Ended(some.run, outcome, ended_at, started_at, mark=str(at.key))",
    ),
    (
        "actors/task/decide.py",
        "f.RunEnded(outcome, message.at))",
        "f.RunEnded(outcome, message.at, mark=message.mark))",
    ),
    (
        "actors/task/state.py",
        "f.RunEnded: _ended,",
        "f.RunEnded: lambda task, fact: replace(_ended(task, fact), mark=fact.mark),",
    ),
    # A host counts what it ever accepted.
    (
        "actors/host/run_folds.py",
        "    need, runs = fact.spec.resources, host.runs\n",
        "    need, runs = fact.spec.resources, host.runs\n"
        "    host = replace(host, accepted=host.accepted + len(fact.members))\n",
    ),
    # Inventories mark what they tell placers.
    (
        "actors/host/inventory/state.py",
        "HostDeltas(inventory, self._sequence + 1, summaries, self._snapshot, gone)",
        'HostDeltas(inventory, self._sequence + 1, summaries, self._snapshot, gone, mark="later")',
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
    for name, owner, field in FIELDS:
        text = (target / name).read_text(encoding="utf-8")
        (target / name).write_text(_with_field(text, owner, field), encoding="utf-8")
    for name, old, new in CHANGES:
        text = (target / name).read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise ValueError(f"{name}: {text.count(old)} times, not once: {old!r}")
        (target / name).write_text(text.replace(old, new), encoding="utf-8")
    return folder


def _with_field(text: str, owner: str, field: str) -> str:
    """A module with one more field behind all others of a class."""
    found = [
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and node.name == owner
    ]
    if len(found) != 1:
        raise ValueError(f"{len(found)} classes {owner}, not one")
    last = max(
        node.end_lineno or 0
        for node in found[0].body
        if isinstance(node, ast.AnnAssign) and "ClassVar" not in ast.unparse(node.annotation)
    )
    lines = text.splitlines(keepends=True)
    return "".join([*lines[:last], f"    {field}\n", *lines[last:]])
