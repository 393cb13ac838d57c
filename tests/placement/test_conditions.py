"""What a host decides for itself is what placers compute for all hosts, and counted by hand.

The reference is the constraint's definition, member after member.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.placement.conditions import (
    MATCH,
    accepts,
    condition_text,
    host_count,
    leaf_of,
    truth_of,
)
from peloton.placement.constraints import allowance, possible, truths
from peloton.placement.index import HostIndex
from peloton.placement.messages import Constraint, HostSummary, Label, Shape
from peloton.runtime.vocabulary import Key

from .hosts import host, label, res

LABELS = [Label("a", "1"), Label("a", "2"), Label("b", "1"), Label("hostname", "h1")]
MOST = 9

labels = st.sampled_from(LABELS)
leaf = st.builds(
    Constraint,
    st.just("label"),
    st.sampled_from(["host", "task", "task", "moon"]),
    labels,
    st.sampled_from(["less", "equal", "greater", "about"]),
    st.integers(0, 4),
)
constraints = st.recursive(
    leaf,
    lambda inner: st.builds(
        Constraint,
        st.sampled_from(["and", "or", "xor"]),
        members=st.lists(inner, max_size=3).map(tuple),
    ),
    max_leaves=5,
)
hosts = st.builds(
    lambda own, running: (tuple(own), running),
    st.lists(labels, max_size=3),
    st.dictionaries(labels, st.integers(1, 4), max_size=3),
)


def index_of(found: list[tuple[tuple[Label, ...], dict[Label, int]]]) -> HostIndex:
    made = HostIndex()
    summaries: list[HostSummary] = [
        host(f"h{at}", res(1), labels=own, running=tuple(sorted(running.items())))
        for at, (own, running) in enumerate(found)
    ]
    made.receive(Key("inventory/0"), summaries)
    return made


@settings(max_examples=300, deadline=None)
@given(
    constraints, st.lists(labels, max_size=3).map(tuple), st.lists(hosts, min_size=1, max_size=4)
)
def test_hosts_and_placers_agree(
    constraint: Constraint, own: tuple[Label, ...], found: list
) -> None:
    index = index_of(found)
    shape = Shape(res(1), constraint=constraint, labels=own)
    seen, could = truths(constraint, index), possible(constraint, index)
    limits = allowance(shape, index)
    for at, (of_host, running) in enumerate(found):
        name = Key(f"host/h{at}")
        row = index.rows[name]

        def count(
            leaf: Constraint, name: Key = name, of_host: tuple = of_host, running: dict = running
        ) -> int:
            if leaf.kind == "host":
                return host_count(leaf.label, host=name, labels=of_host)
            return running.get(leaf.label, 0)

        truth = truth_of(
            constraint, lambda leaf, count=count: leaf_of(leaf, lambda _: count(leaf), own=())
        )
        assert seen[row] == truth(None, 0)
        assert could[row] or seen[row] < MATCH, "what is true is possible"
        taken = accepts(constraint, own, host=(name, of_host), running=running, most=MOST)
        if any(leaf.kind == "task" for leaf in _leaves(constraint)):
            assert taken == min(limits[row], MOST)
        else:
            assert taken == (MOST if seen[row] >= MATCH else 0)


@settings(max_examples=200, deadline=None)
@given(constraints, st.lists(labels, max_size=3).map(tuple), hosts)
def test_a_host_accepts_one_after_another(
    constraint: Constraint, own: tuple[Label, ...], found: tuple
) -> None:
    of_host, running = found
    name, counts, taken = Key("host/h1"), dict(running), 0
    while taken < MOST and accepts(constraint, own, host=(name, of_host), running=counts, most=1):
        taken += 1
        for each in own:
            counts[each] = counts.get(each, 0) + 1
    assert accepts(constraint, own, host=(name, of_host), running=running, most=MOST) == taken


def test_only_some_rows_are_asked() -> None:
    x = Label("job", "x")
    index = HostIndex()
    counts = {"a": 0, "b": 1, "c": 3}
    index.receive(
        Key("inventory/0"),
        [host(n, res(1), running=((x, count),) if count else ()) for n, count in counts.items()],
    )
    shape = Shape(res(1), constraint=label("task", "job", "x", "less", 3), labels=(x,))
    every = allowance(shape, index)
    rows = [index.rows[Key(f"host/{name}")] for name in "ca"]
    assert [*allowance(shape, index, rows=every[rows] * 0 + rows)] == [0, 3]


def test_a_constraint_is_told_to_people() -> None:
    alone, some = label("task", "app", "x", "less", 1), label("task", "app", "y", "less", 3)
    near = label("task", "app", "z")
    both = Constraint("or", members=(alone, Constraint("and", members=(some, near))))
    assert condition_text(both) == (
        "(no task with app=x or (fewer than 3 times task with app=y and a task with app=z))"
    )
    assert condition_text(label("host", "rack", "r")) == "rack=r"


def _leaves(constraint: Constraint) -> list[Constraint]:
    if constraint.form in ("and", "or"):
        return [one for member in constraint.members for one in _leaves(member)]
    return [constraint]
