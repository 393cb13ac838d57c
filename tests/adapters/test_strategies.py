"""Strategies of other distributions: found when a daemon starts, used, or refused by name."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import invalidate_caches
from pathlib import Path
from typing import NamedTuple

import pytest

from peloton.assembly.installed import BadInstalled
from peloton.assembly.strategies import (
    STRATEGY_GROUP,
    installed_strategies,
    strategies_of,
    strategy_problems,
)
from peloton.failures import CannotStart
from peloton.placement.messages import Label, Shape
from peloton.placement.placer import Placer, PlacerSettings
from peloton.placement.strategies import STRATEGIES
from peloton.runtime.vocabulary import Key
from peloton.settings.daemon import parse
from tests.placement.hosts import host, label, place, report, res

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "placement.md").read_text()
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
ENTRY = "smallest = old_hardware:SMALLEST"
ALONE = {
    "cluster": "c",
    "journal": {"sqlite": {"folder": "data"}},
    "backend": {"simulated": {"hosts": [{"name": "a", "cpus": 1}]}},
}


class Site(NamedTuple):
    """A folder of installed distributions."""

    folder: Path

    def install(self, name: str, code: str, *entries: str, module: str = "old_hardware") -> None:
        (self.folder / f"{module}.py").write_text(code)
        info = self.folder / f"{name.replace('-', '_')}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text("\n".join([f"[{STRATEGY_GROUP}]", *entries, ""]))
        invalidate_caches()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Site(tmp_path)
    for name in ("old_hardware", "newer"):
        sys.modules.pop(name, None)


def placer_with(*hosts: object, kept_max: int = 0) -> Placer:
    placer = Placer(
        Key("placer/0"), PlacerSettings(kept_max=kept_max), strategies=installed_strategies()
    )
    report(placer, hosts, 1, snapshot=True)  # type: ignore[arg-type]
    return placer


def test_the_page_says_how_to_register_one() -> None:
    assert f"    {ENTRY}\n" in PAGE and f"{STRATEGY_GROUP} =\n" in PAGE


def test_those_of_the_package_are_there_and_one_named_twice_is_one(site: Site) -> None:
    assert {**installed_strategies()} == {**STRATEGIES}
    site.install("acme-placing", CODE, "pack = peloton.placement.strategies:PACK")
    assert {**installed_strategies()} == {**STRATEGIES}


def test_the_one_of_the_page_places(site: Site) -> None:
    site.install("acme-placing", CODE, ENTRY)
    assert installed_strategies().keys() == {*STRATEGIES, "smallest"}
    placer = placer_with(
        host("new", res(9, 9), capacity=res(9, 64)), host("old", res(4, 9), capacity=res(9, 16))
    )
    shape = Shape(res(1), strategy="smallest")
    assert place(placer, shape, 3)[0] == ["old", "old", "new"]


def test_it_regards_constraints_and_instances_of_its_job_as_any_other(site: Site) -> None:
    site.install("acme-placing", CODE, ENTRY)
    mine = Label("peloton.job_id", "j")
    placer = placer_with(
        host("old", res(4, 1), running=((mine, 1),), labels=(Label("rack", "a"),)),
        host("new", res(4, 9), running=(), labels=(Label("rack", "b"),)),
    )
    in_rack = Shape(res(1), strategy="smallest", constraint=label("host", "rack", "b"))
    assert place(placer, in_rack)[0] == ["new"]
    apart = Shape(res(1), strategy="smallest", labels=(mine,), apart=mine)
    assert place(placer, apart, 3)[0] == ["new", "old", "new"]


HEAD = "from peloton.placement.strategies import Strategy\n"
BAD: list[tuple[str, str, str, str]] = [
    ("an import that fails", "import nothing_of_that_name\n", ENTRY,
     r"cannot be loaded, at \S+/old_hardware\.py:1: ModuleNotFoundError: No module named "
     r"'nothing_of_that_name'"),
    ("a module that is broken", "def\n", ENTRY, r"cannot be loaded: SyntaxError"),
    ("a name that is not there", "X = 1\n", ENTRY, r"cannot be loaded: AttributeError"),
    ("no strategy", "SMALLEST = len\n", ENTRY, r"is a builtin_function_or_method, not a Strategy"),
    ("another name", HEAD + "SMALLEST = Strategy('big', lambda hosts, need: ())\n", ENTRY,
     r"calls itself 'big'"),
    ("no columns", HEAD + "SMALLEST = Strategy('smallest', lambda hosts, need: ())\n", ENTRY,
     r"fails on two empty hosts: .* returned no tuple of arrays"),
    ("a wrong length", HEAD + "SMALLEST = Strategy('smallest', lambda hosts, need: "
     "(hosts.free[0][:1],))\n", ENTRY, r"an array of 2 whole numbers"),
    ("fractions", HEAD + "SMALLEST = Strategy('smallest', lambda hosts, need: "
     "(hosts.free[0] / 2,))\n", ENTRY, r"an array of 2 whole numbers"),
    ("none each", HEAD + "SMALLEST = Strategy('smallest', lambda hosts, need: (), each_max=0)\n",
     ENTRY, r"an `each_max` of 1 or more"),
    ("a name that is taken", HEAD + "SMALLEST = Strategy('pack', lambda hosts, need: ())\n",
     "pack = old_hardware:SMALLEST", r"peloton-scheduler has a strategy of that name"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "code", "entry", "says"), BAD, ids=[row[0] for row in BAD])
def test_what_cannot_be_used_stops_the_start_and_names_its_distribution(
    site: Site, what: str, code: str, entry: str, says: str
) -> None:
    site.install("acme-placing", code, entry)
    with pytest.raises(BadInstalled, match=says) as caught:
        installed_strategies()
    assert "of acme-placing 1.5 (old_hardware:SMALLEST)" in str(caught.value)
    assert isinstance(caught.value, CannotStart)


def test_two_distributions_cannot_have_one_name(site: Site) -> None:
    site.install("acme-placing", CODE, ENTRY)
    site.install("zeta", CODE, "smallest = newer:SMALLEST", module="newer")
    with pytest.raises(BadInstalled, match="of zeta 1.5 .*: acme-placing has a strategy"):
        installed_strategies()


def test_one_that_fails_later_is_given_up_and_says_so(site: Site) -> None:
    code = HEAD + (
        "def rank(hosts, need):\n    return (hosts.free[0] // (hosts.size - 64),)\n\n"
        "def broken(hosts, need):\n    assert hosts.size < 3, 'too many'\n"
        "    return (hosts.free[0],)\n\nSMALLEST = Strategy('smallest', broken)\n"
    )
    site.install("acme-placing", code, ENTRY)
    placer = placer_with(*(host(f"h{at}", res(4)) for at in range(3)), kept_max=9)
    for _ in range(2):
        assert place(placer, Shape(res(1), strategy="smallest")) == ([], {"unknown_strategy": 1})
    text = placer.why(placer._shapes.of(Shape(res(1), strategy="smallest")), [], used=[]).text
    assert text == (
        "placement strategy 'smallest' failed: acme-placing (old_hardware:SMALLEST) raised "
        "AssertionError: too many"
    )
    assert place(placer, Shape(res(1)))[0] == ["h0"], "others are placed as ever"


def test_the_file_of_a_daemon_names_defaults() -> None:
    choice = strategies_of(parse(ALONE, ROOT))
    assert choice.by_type == {"BATCH": "pack", "SERVICE": "mimir"}
    given = parse(ALONE | {"placement": {"strategies": {"BATCH": "mimir"}}}, ROOT)
    assert strategies_of(given).by_type == {"SERVICE": "mimir", "BATCH": "mimir"}
    wrong = parse(ALONE | {"placement": {"strategies": {"BATCH": "best"}}}, ROOT)
    says = r"^placement\.strategies\.BATCH: unknown placement strategy 'best': there are "
    with pytest.raises(CannotStart, match=says):
        strategies_of(wrong)
    (text,) = strategy_problems(wrong)
    assert re.match(says, text) and strategy_problems(given) == []
