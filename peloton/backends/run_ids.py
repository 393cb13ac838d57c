"""Ids of runs at the keeper: the runtime's, and in a later generation of the cluster with a suffix.

When a journal was rolled back and that was accepted, its tasks launch runs under numbers that were
used before, for what the journal has forgotten. The keeper refuses an id for as long as it has the
folder of its run, and no longer. So from then on every new run has an id that was never used:
`JOB-0-2` is `JOB-0-2.g1` at the keeper. Runs from before that the journal still knows keep theirs.
"""

from __future__ import annotations

from collections.abc import Iterable

_MARK = ".g"


class RunIds:
    """Turns names of runs into ids at the keeper, and back; from any thread."""

    def __init__(self, generation: int = 0) -> None:
        self._suffix = f"{_MARK}{generation}" if generation else ""
        self._older: dict[str, str] = {}
        """Ids of runs from before this generation, by their names, until they are forgotten."""

    def begin(self, name: str) -> str:
        """Return the id of a run that is launched: always of this generation."""
        self._older.pop(name, None)
        return name + self._suffix

    def at_keeper(self, name: str) -> str:
        """Return the id of a run that the keeper has."""
        return self._older.get(name) or name + self._suffix

    def name(self, run_id: str) -> str:
        """Return the name of a run that the keeper reports."""
        if not self._suffix:
            return run_id
        name = run_id.partition(_MARK)[0]
        if run_id != name + self._suffix:
            self._older[name] = run_id
        else:
            self._older.pop(name, None)
        return name

    def forget(self, names: Iterable[str]) -> list[str]:
        """Return the ids that the keeper may forget; their names are free for this generation."""
        found = []
        for name in names:
            found.append(self.at_keeper(name))
            self._older.pop(name, None)
        return found
