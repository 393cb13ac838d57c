"""Which row of its table each member of a slice gets by a rollout, and which it had before.

Members whose config does not change have a copy of their row, with the new version.
"""

from __future__ import annotations

from peloton.actors.job.slice.configs import SpecRow, spec_rows
from peloton.actors.job.slice.messages import SliceOpening
from peloton.actors.job.slice.rollout_messages import RolloutOrder
from peloton.actors.job.slice.rollouts import NewRow
from peloton.actors.job.slice.state import NO_MEMBERS, Slice
from peloton.actors.job.slice.task_config import same_config
from peloton.runtime.vocabulary import At, Bits


class RowChoices:
    """Which row each member of a slice is to have, as members are looked at."""

    def __init__(
        self,
        slice_: Slice,
        order: RolloutOrder,
        *,
        opening: SliceOpening,
        forced: Bits,
        at: At,
    ) -> None:
        self._slice, self._order, self._forced = slice_, order, forced
        self._groups: tuple[tuple[SpecRow, Bits], ...] = ()
        self._back = _before(slice_, order.back) if order.back else None
        if order.members is None and not order.back:
            rows, members = spec_rows(
                slice_.number, opening, known=slice_.specs, lots_made=slice_.lots_made
            )
            self._groups = tuple(zip(rows, members, strict=True))
        closed = enumerate(slice_.closed)
        self.before = tuple((spec, members) for spec, members in closed if members)
        self._coming = _rows_to_come(slice_, at)
        self._found: dict[tuple[int | None, int | None, bool], Bits] = {}

    def choose(self, spec: int, members: Bits, *, beyond: Bits) -> None:
        """Place members that exist, and have the row `spec`; those `beyond` get none."""
        self._note_before(spec, members)
        members = members - beyond
        row = self._slice.specs[spec]
        if self._order.members is not None:
            self._copy(spec, spec, members=members, same=True)
        elif self._order.back and self._back is None:
            self._copy(spec, spec, members=members, same=True)  # that rollout changed nothing here
        elif self._back is not None:
            for source, some in self._back:
                if some & members:
                    same = same_config(self._slice.specs[source].config, row.config)
                    self._copy(source, spec, members=some & members, same=same)
        for group, (wanted, some) in enumerate(self._groups):
            if not some & members:
                continue
            same = same_config(wanted.config, row.config)
            kept = some & members - self._forced if same else NO_MEMBERS
            self._add(group, spec, runs=False, members=kept)
            self._add(group, None, runs=True, members=some & members - kept)

    def choose_new(self, members: Bits) -> None:
        """Place members that do not exist yet: they begin with the new config."""
        for group, (_, some) in enumerate(self._groups):
            self._add(group, None, runs=True, members=some & members)
        if self._order.members is None and not self._order.back:
            return
        for spec, some in (*(self._back or ()), *enumerate(self._slice.closed)):
            self._add(None, spec, runs=True, members=some & members)
            members = members - some

    def _note_before(self, spec: int, members: Bits) -> None:
        """Record the rows before.

        A member that was on the way to another row counts as having had it: so it was with the
        job's previous spec.
        """
        for row, some in self._coming:
            if some & members:
                self.before = (*self.before, (row, some & members))
                members = members - some
        if members:
            self.before = (*self.before, (spec, members))

    def _copy(self, source: int, spec: int, *, members: Bits, same: bool) -> None:
        kept = members - self._forced if same else NO_MEMBERS
        self._add(None, spec, runs=False, members=kept)
        self._add(None, source, runs=True, members=members - kept)

    def _add(self, group: int | None, like: int | None, *, runs: bool, members: Bits) -> None:
        if members:
            name = group, like, runs
            self._found[name] = self._found.get(name, NO_MEMBERS) | members

    def rows(self, used: frozenset[int]) -> tuple[NewRow, ...]:
        """Return the rows, in places that are not in use, or beyond the table."""
        free = iter([place for place in range(len(self._slice.specs)) if place not in used])
        beyond = iter(range(len(self._slice.specs), len(self._slice.specs) + len(self._found)))
        return tuple(
            NewRow(next(free, None) or next(beyond), members, group, like, runs)
            for (group, like, runs), members in self._found.items()
        )


def _before(slice_: Slice, number: int) -> tuple[tuple[int, Bits], ...] | None:
    """Return the rows before the rollout of this number; None if the slice never began it."""
    rollout = slice_.rollout
    return rollout.before if rollout is not None and rollout.order.number == number else None


def _rows_to_come(slice_: Slice, at: At) -> tuple[tuple[int, Bits], ...]:
    """Return the rows that members are to have by the rollout before.

    These are members under way, and those that wait, unless it is over.
    """
    if at.index is None:
        return ()
    targets = slice_.rollout.targets if slice_.rollout is not None else ()
    renewals = {task.renewal.spec for task in at.index.classes if task.renewal is not None}

    def renewed_with(row: int) -> Bits:
        return Bits(
            at.index.where(lambda task: task.renewal is not None and task.renewal.spec == row)
        )

    return (*((row, renewed_with(row)) for row in sorted(renewals)), *targets)


def rows_in_use(slice_: Slice, at: At, *, coming: Bits) -> frozenset[int]:
    """Return rows that a member has or is to have, and those that a rollout goes back to.

    `coming`: members that begin to exist in this very frame, with rows that are not known yet.
    """
    if coming:
        return frozenset(range(len(slice_.specs)))
    used = {0}
    if at.index is not None:
        used |= {spec or 0 for spec, _ in at.index.columns.groups("spec", at.index.present)}
        used |= {task.renewal.spec for task in at.index.classes if task.renewal is not None}
    used |= {spec for spec, members in enumerate(slice_.closed) if members}
    if slice_.rollout is not None:
        used |= {*slice_.rollout.places, *(spec for spec, _ in slice_.rollout.before)}
    return frozenset(used)
