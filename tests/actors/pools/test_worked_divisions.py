"""The worked divisions that other schedulers document, as tables: what each pool is entitled to.

States are put into the tree by hand. Random trees are compared with the definition elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import immutables
import msgspec
import pytest

from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool import messages as m
from peloton.actors.respool.kind import kind as pool_kind
from peloton.actors.respool.messages import ROOT
from peloton.actors.respool.state import InventorySum, Pool
from peloton.actors.respool.tree import Tree
from peloton.runtime.vocabulary import At, Key
from tests.actors.pools.test_pool import config, lot, put, tree

KIND = pool_kind()

STATIC = (True, False, False, False)


def pool(
    name: str, parent: str = "root", *, reserved: float = 10, limit: float = 1000, **rest: Any
) -> m.PoolConfig:
    share = rest.pop("share", 1.0)
    return config(
        name, Key(f"respool/{parent}"), reserved=reserved, limit=limit,
        share=(share, 1.0, 1.0, 1.0), **rest,
    )  # fmt: skip


def load(into: Tree, tasks: Mapping[str, tuple[int, int]]) -> None:
    """Tasks of one cpu by pool: so many admitted, so many that wait."""
    for name, (admitted, waiting) in tasks.items():
        put(into, f"{name}/0", lot(Key(f"respool/{name}"), waiting, admitted))


def entitled(of: Tree) -> dict[str, float]:
    """The cpus of each pool as its view shows them, rounded to a hundredth."""
    at = At(now=0.0, key=ROOT, index=of)
    views = KIND.inspect[m.ListPools](of.pools[ROOT], m.ListPools(), at)
    return {
        each.config.name: round(each.entitlement.cpu / UNIT, 2)
        for each in views
        if each.pool != ROOT
    }


@pytest.mark.parametrize(
    ("needs", "shown"),
    [((10, 80, 80), (10.0, 45.0, 45.0)), ((60, 80, 80), (33.33, 33.33, 33.33))],
)
def test_three_alike(needs: tuple[int, ...], shown: tuple[float, ...]) -> None:
    names = ("a", "b", "c")
    found = tree(**{name: pool(name, reserved=20, limit=100) for name in names})
    load(found, {name: (0, need) for name, need in zip(names, needs, strict=True)})
    assert entitled(found) == dict(zip(names, shown, strict=True))


def test_an_inner_pool_and_a_static_one() -> None:
    found = tree(
        a=pool("a", reserved=40, share=2.0, limit=100),
        a1=pool("a1", "a", reserved=30, limit=60),
        a2=pool("a2", "a", reserved=10, share=3.0, limit=40),
        b=pool("b", reserved=30, limit=100),
        c=pool("c", reserved=20, limit=25, static=STATIC),
    )
    load(found, {"a1": (20, 30), "a2": (0, 5), "b": (30, 40)})
    assert entitled(found) == {"a": 46.67, "a1": 41.67, "a2": 5.0, "b": 33.33, "c": 20.0}


@pytest.mark.parametrize(
    ("busy", "shown"),
    [
        (("p11",), (46.67, 26.67, 26.67, 33.33, 13.33, 13.33, 13.33)),
        (("p11", "p21"), (40.0, 40.0, 20.0, 30.0, 10.0, 30.0, 10.0)),
        (("p11", "p21", "p22"), (33.33, 53.33, 13.33, 26.67, 6.67, 26.67, 26.67)),
    ],
)
def test_a_tree_in_which_one_after_another_gets_work(
    busy: tuple[str, ...], shown: tuple[float, ...]
) -> None:
    parents = {
        "p1": "root", "p2": "root", "p3": "root",
        "p11": "p1", "p12": "p1", "p21": "p2", "p22": "p2",
    }  # fmt: skip
    found = tree(**{name: pool(name, parent) for name, parent in parents.items()})
    load(found, dict.fromkeys(busy, (0, 20)))
    assert entitled(found) == dict(zip(parents, shown, strict=True))


def test_a_cluster_smaller_than_what_is_reserved() -> None:
    """Ours: where others over-commit on paper, what there is is divided by reservation."""
    found = tree(a=pool("a", reserved=150), b=pool("b", reserved=50))
    load(found, {"a": (0, 400), "b": (0, 400)})
    assert entitled(found) == {"a": 75.0, "b": 25.0}


def test_a_config_is_shown_without_what_depends_on_tasks() -> None:
    found = tree(a=pool("a"))
    at = At(now=0.0, key=ROOT, index=found)
    query = m.GetPool(Key("respool/a"), config_only=True)
    assert {each.entitlement for each in KIND.inspect[m.GetPool](found.pools[ROOT], query, at)} == {
        None
    }


def test_tasks_on_slack_beside_others() -> None:
    """Their memory is of the pool, up to a part of what it reserves; their cpu is of the slack."""
    found = Tree()
    both = Resources(100 * UNIT, 1000 * UNIT)
    sums = immutables.Map({Key("inventory/0"): InventorySum(1, both + slack(20))})
    none = Resources()
    root = Pool(m.PoolConfig("root", ROOT, none, none), sums)
    found.put(ROOT, old=None, new=root)
    for name in ("x", "y"):
        half = Resources(50 * UNIT, 500 * UNIT)
        config = m.PoolConfig(name, ROOT, half, both, slack_percent=20.0)
        found.put(Key(f"respool/{name}"), old=None, new=Pool(config))
    amounts = {
        "x": [(20, 300, True), (10, 100, False)],
        "y": [(40, 400, True)],
    }
    on_slack = {"x": [(5, 40, True), (30, 200, False)], "y": [(4, 20, False)]}
    for revocable, rows in ((False, amounts), (True, on_slack)):
        for name, sizes in rows.items():
            for cpus, memory, held in sizes:
                size = Resources(cpus * UNIT, memory * UNIT)
                one = lot(Key(f"respool/{name}"), waiting=not held, admitted=held)
                shape = msgspec.structs.replace(
                    one.shape,
                    resources=size.revocable() if revocable else size,
                    revocable=revocable,
                )
                put(found, f"{name}/{cpus}", msgspec.structs.replace(one, shape=shape))
    shown = {
        name: tuple(round(each / UNIT, 2) for each in entitlement.amounts())
        for name in ("x", "y")
        if (entitlement := found.entitlement(Key(f"respool/{name}")))
    }
    assert shown == {"x": (45.0, 540.0, 0, 0, 16.0), "y": (55.0, 460.0, 0, 0, 4.0)}


def slack(cpus: int) -> Resources:
    return Resources(cpus * UNIT).revocable()
