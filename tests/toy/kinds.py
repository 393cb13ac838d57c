"""All toy kinds. Small, yet they use all of the runtime; none is of a scheduler."""

from __future__ import annotations

from tests.toy.daemon import BULB, PANEL
from tests.toy.fleet import GRID, METER
from tests.toy.note import NOTE

SIZES = {"house": 2, "city": 1}
KINDS = {kind.name: kind for kind in (BULB, PANEL, METER, GRID, NOTE)}
