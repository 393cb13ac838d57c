"""A table of labels by row: which rows carry a label, and how often.

The table is sparse, because most labels are on few hosts; a label that constraints use is also held
as an array, so that one comparison evaluates all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from peloton.placement.messages import Label

Ints = npt.NDArray[np.int64]

DENSE_LABELS_MAX = 256
"""Labels held as arrays, of either kind; the oldest is evicted when there are more."""

NO_ROWS: Mapping[int, int] = {}
NO_LABELS: Mapping[Label, int] = {}


class LabelTable:
    """Counts of labels, by row and by label."""

    def __init__(self) -> None:
        self._by_label: dict[Label, dict[int, int]] = {}
        self._by_row: dict[int, dict[Label, int]] = {}
        self._dense: dict[Label, Ints] = {}
        self._rows: dict[Label, Ints] = {}

    def change(self, row: int, label: Label, *, by: int) -> None:
        """Add `by` to the count of `label` at `row`; counts of zero are forgotten."""
        rows = self._by_label.setdefault(label, {})
        labels = self._by_row.setdefault(row, {})
        before = rows.get(row, 0)
        count = before + by
        if self._rows and not (before and count):
            self._rows.pop(label, None)
        if count:
            rows[row] = labels[label] = count
        else:
            rows.pop(row, None)
            labels.pop(label, None)
        if not rows:
            del self._by_label[label]
        if not labels:
            del self._by_row[row]
        dense = self._dense.get(label)
        if dense is not None:
            if row < len(dense):
                dense[row] = count
            else:
                del self._dense[label]

    def replace(self, row: int, counted: Iterable[tuple[Label, int]]) -> None:
        """Replace all labels of `row` by `counted`."""
        for label, count in list(self._by_row.get(row, {}).items()):
            self.change(row, label, by=-count)
        for label, count in counted:
            if count:
                self.change(row, label, by=count)

    def rows(self, label: Label) -> Mapping[int, int]:
        """Return the rows with `label`, and how often each has it.

        Read the result before the next change.
        """
        return self._by_label.get(label, NO_ROWS)

    def at(self, row: int) -> Mapping[Label, int]:
        """Return the labels of a row, and how often it has each.

        Read the result before the next change.
        """
        return self._by_row.get(row, NO_LABELS)

    def sorted_rows(self, label: Label) -> Ints:
        """Return the rows with `label`, ascending. Do not write to the array."""
        found = self._rows.get(label)
        if found is None:
            found = np.array(sorted(self.rows(label)), np.int64)
            if len(self._rows) >= DENSE_LABELS_MAX:
                del self._rows[next(iter(self._rows))]
            self._rows[label] = found
        return found

    def counts(self, label: Label, size: int) -> Ints:
        """Return the count of `label` at each of `size` rows. Do not write to the array."""
        dense = self._dense.get(label)
        if dense is None or len(dense) != size:
            dense = np.zeros(size, np.int64)
            for row, count in self._by_label.get(label, {}).items():
                dense[row] = count
            if label not in self._dense and len(self._dense) >= DENSE_LABELS_MAX:
                del self._dense[next(iter(self._dense))]
            self._dense[label] = dense
        return dense
