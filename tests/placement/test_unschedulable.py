"""What the placer reports to people when no host fits: what is missing, and how much."""

from __future__ import annotations

import pytest

from peloton.placement.messages import Constraint, HostSummary, Label, Shape, Unplaced, Wish
from peloton.placement.placer import PlacerSettings
from peloton.runtime.vocabulary import Bits

from .hosts import SLICE, host, label, placer_of, res

R9 = label("host", "rack", "r9")
NOT_R1 = label("host", "rack", "r1", "less", 1)
RACK = (Label("rack", "r1"),)
NEVER = ": it can never fit on the hosts of this cluster"


def unplaced(hosts: list[HostSummary], shape: Shape, **rest: object) -> Unplaced:
    placer = placer_of(hosts, PlacerSettings(scarce_gpu=True))
    wish = Wish(SLICE, 1, Bits.of(0), shape, **rest)  # type: ignore[arg-type]
    (send,) = placer.receive([(SLICE, wish)], 0.0)
    assert isinstance(send.message, Unplaced)
    return send.message


def alike(count: int, free: float, **rest: object) -> list[HostSummary]:
    rest.setdefault("capacity", res(12, 64))
    return [host(f"h{n}", res(free, 64), **rest) for n in range(count)]


@pytest.mark.parametrize(
    ("hosts", "shape", "text"),
    [
        (
            alike(3, 12.0),
            Shape(res(13)),
            "3 of 3 hosts lack cpu (requested 13, the largest host has 12)" + NEVER,
        ),
        (
            alike(1, 1.5) + [host("full", res(), capacity=res(12))],
            Shape(res(2)),
            "2 of 2 hosts lack cpu (requested 2, at most 1.5 free)",
        ),
        (
            [host("a", res(4, 1), capacity=res(4, 1)), host("b", res(1, 9), capacity=res(1, 9))],
            Shape(res(4, 9)),
            "1 of 2 hosts lacks cpu (requested 4, at most 1 free), "
            "1 of 2 hosts lacks memory (requested 9 MB, at most 1 MB free), "
            "no single host is large enough for all of it" + NEVER,
        ),
        (
            alike(2, 12.0, labels=RACK),
            Shape(res(1), constraint=R9),
            "2 of 2 hosts do not meet the constraint (requires rack=r9; no host matches)" + NEVER,
        ),
        (
            [*alike(2, 12.0), host("r9", res(1), labels=(Label("rack", "r9"),))],
            Shape(res(2), constraint=R9),
            "1 of 3 hosts lacks cpu (requested 2, at most 1 free), "
            "2 of 3 hosts do not meet the constraint (requires rack=r9), "
            "the hosts that are large enough are not open to it" + NEVER,
        ),
        (
            alike(1, 12.0, labels=RACK),
            Shape(res(1), constraint=Constraint("and", members=(NOT_R1,))),
            "1 of 1 hosts does not meet the constraint (requires no rack=r1; no host matches)"
            + NEVER,
        ),
        (
            alike(1, 1.0, labels=RACK),
            Shape(res(2), constraint=R9),
            "1 of 1 hosts lacks cpu (requested 2, at most 1 free), no host matches rack=r9" + NEVER,
        ),
        (
            alike(2, 12.0, labels=RACK),
            Shape(res(1), constraint=Constraint("or", members=(R9, NOT_R1))),
            "2 of 2 hosts do not meet the constraint "
            "(requires (rack=r9 or no rack=r1); no host matches)" + NEVER,
        ),
        (alike(2, 12.0, up=False), Shape(res(1)), "2 of 2 hosts are not up"),
        (
            alike(1, 12.0, ports=1),
            Shape(res(1), ports=3),
            "1 of 1 hosts lacks ports (requested 3, at most 1 free)",
        ),
        (
            [host("g", res(9, gpu=1))],
            Shape(res(1)),
            "1 of 1 hosts is kept for tasks with gpus, "
            "the hosts that are large enough are not open to it" + NEVER,
        ),
    ],
)
def test_the_text(hosts: list[HostSummary], shape: Shape, text: str) -> None:
    answer = unplaced(hosts, shape)
    assert answer.text == "no host fits: " + text
    assert answer.never == text.endswith(NEVER)


def test_a_host_that_is_down_or_full_may_do_later() -> None:
    assert not unplaced(alike(2, 12.0, up=False), Shape(res(12))).never
    assert not unplaced(alike(2, 0.0), Shape(res(12))).never
    assert unplaced(alike(2, 12.0, up=False), Shape(res(13))).never


def test_tasks_on_a_host_may_end_so_they_forbid_nothing_for_good() -> None:
    alone = Shape(res(1), constraint=label("task", "k", "v", "less", 1))
    answer = unplaced(alike(1, 12.0, running=((Label("k", "v"), 1),)), alone)
    assert not answer.never
    assert answer.text == "no host fits: 1 of 1 hosts has a task with k=v"


def test_hosts_that_just_refused_are_counted_apart() -> None:
    hosts = alike(1, 12.0)
    assert unplaced(hosts, Shape(res(1)), refused=(hosts[0],)).text == (
        "no host fits: 1 of 1 hosts has just refused"
    )


def test_no_hosts_are_not_a_proof() -> None:
    answer = unplaced([], Shape(res(1)))
    assert (answer.text, answer.never) == ("no host: the placer knows no hosts yet", False)
