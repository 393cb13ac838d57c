"""The unfinished proof that a gang fits on hosts as a whole, and what it asks next.

It holds what was asked and answered; all of it may be lost. `proving.py` decides.
"""

from __future__ import annotations

from peloton.actors.resources import Resources
from peloton.actors.respool.messages import LeaversFound
from peloton.actors.respool.moments import LaneMoments
from peloton.placement.messages import GangRoomFound
from peloton.runtime.vocabulary import Key, Send

PROOF_S = 5.0
"""What has not been answered after so long is lost."""
PROVING = "it is being proven that all of the gang go together on the hosts of who would give back"


class GangProof:
    """One proof: the gang, the runs that could leave, and what a placer answered."""

    def __init__(self, lane: Key, gang: tuple[Key, ...], *, lanes: LaneMoments, wide: bool) -> None:
        self.lane, self.gang = lane, gang
        self.lanes = lanes  # those among which its lane waits
        self.wide = wide  # all who may give anything are asked
        self.number, self.until = 0, 0.0
        self.asked: dict[Key, Resources] = {}  # lots, each with the size of a member
        self.leavers: dict[Key, LeaversFound] = {}
        self.room: GangRoomFound | None = None


class GangProofs:
    """The proofs of one tree."""

    def __init__(self) -> None:
        self.open: GangProof | None = None
        self.last: tuple[Key, float] | None = None  # who has one, and until when
        self.next: dict[Key, LaneMoments] = {}  # lanes that wait for their turn, and among which
        self.asks: tuple[Send, ...] = ()  # the last questions
        self.asked = 0  # how often there were new ones
        self._number = 0

    def begin(self, proof: GangProof, now: float) -> None:
        """Begin a proof. Its number is higher than any of another owner's."""
        self._number = max(self._number + 1, int(now * 1000))
        proof.number, proof.until = self._number, now + PROOF_S
        self.open = proof

    def ask(self, *asks: Send) -> None:
        """Set the next questions, in place of those before."""
        self.asks, self.asked = asks, self.asked + 1
