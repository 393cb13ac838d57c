"""The answers of a placer to slices: proposals of hosts, and reasons why there are none."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from msgspec.structs import replace

from peloton.placement.messages import Placed, Unplaced
from peloton.placement.unschedulable import Unschedulable
from peloton.runtime.vocabulary import Bits, Key, Send


class Proposed(NamedTuple):
    """Hosts that were proposed: their rows, and one host for each member, in order.

    `shares`: by member, how many tasks with the label `apart` its host may have already; empty for
    shapes without that label.
    """

    rows: list[int]
    hosts: list[Key]
    shares: list[int]


NOTHING = Proposed([], [], [])


def placed(slice_: Key, found: Placed, *, shares: list[int]) -> list[Send]:
    """Return the answers to a slice that propose hosts.

    Members whose hosts may have equally many tasks of the label `apart` share one answer.
    """
    if len(set(shares)) < 2:
        if shares and shares[0]:
            found = replace(found, shares=shares[0])
        return [Send(slice_, found)]
    members, sends, start = [*found.members], [], 0
    for share, alike in groupby(shares):
        end = start + len([*alike])
        some, hosts = Bits.of(*members[start:end]), found.hosts[start:end]
        sends.append(Send(slice_, Placed(found.number, some, hosts, found.shape, share)))
        start = end
    return sends


def unplaced(
    slice_: Key, number: int, *, members: Bits, why: Unschedulable, kept: bool = False
) -> Send:
    """Return the answer to a slice that these members have no host, and why."""
    text = why.text
    if why.reserve:
        names = ", ".join(host.partition("/")[2] for _, host in why.reserve)
        text += f"; room is kept on {names} for a task that has waited long"
    reserve = why.reserve
    return Send(slice_, Unplaced(number, members, why.reasons, text, why.never, kept, reserve))
