"""Storms over the kinds of extensions: faults of processes, clocks, store and network, from a seed.

    STORMS = KindStorms([LOCK], command=acquire_or_release, always=[one_holder_at_a_time])

`declaring.py` has what a package declares, `history.py` what its rules are asked about, and
`playing.py` plays one storm. The same seed is the same history in any process.
"""

from peloton.chaos.kinds.declaring import KindStorms, StormCommand
from peloton.chaos.kinds.history import KindHistory, ToldMessage
from peloton.chaos.kinds.playing import KindStormFailed, draw_kinds, play_kinds, shrink_kinds

__all__ = [
    "KindHistory", "KindStormFailed", "KindStorms", "StormCommand", "ToldMessage", "draw_kinds",
    "play_kinds", "shrink_kinds",
]  # fmt: skip
