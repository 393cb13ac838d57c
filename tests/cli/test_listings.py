"""Options of listings beyond the original's: `wide`, `--watch`, and how many are looked at."""

from __future__ import annotations

import contextlib
import io

import click
import pytest

from peloton.cli.cluster.host import host_lines
from peloton.cli.cluster.pool import rows as pool_rows
from peloton.cli.shared import watching
from peloton.ops.v1 import ops_pb2
from tests.cli.terminal import Terminal
from tests.sdk.fakes import JOB


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def test_a_wide_listing_has_more_columns(peloton: Terminal) -> None:
    made = peloton.cluster.add_job("RUNNING", "RUNNING", "SUCCEEDED")
    made.config.labels.add(key="team", value="a")
    narrow = [cells(line) for line in peloton.lines("job", "query")]
    wide = [cells(line) for line in peloton.lines("job", "query", "--output", "wide")]
    assert [line[: len(narrow[0]) - 1] for line in wide] == [line[:-1] for line in narrow]
    assert wide[0][-4:-1] == ["Start Time", "Pool", "Labels"]
    header, row, _ = [
        cells(line) for line in peloton.lines("task", "list", JOB, "--output", "wide")
    ]
    assert (header[-4], row[-4]) == ("Run", f"{JOB}-0-1")
    nothing = peloton("host", "list", "-o", "wide")
    assert nothing.out == "No hosts.\n" and "/health" in nothing.err
    assert peloton("host", "list", "-o", "json").err == ""


def test_a_query_for_a_thousand_looks_at_a_thousand(peloton: Terminal) -> None:
    for words, considered in (
        ("-n 1000", 1000), ("-n 1000 -o 50", 1050), ("-n 5", 100), ("", 100), ("-n 1000 -q 7", 7),
    ):  # fmt: skip
        peloton(*f"job query {words}".split())
        page = peloton.cluster.called("Query")[-1].request.spec.pagination
        assert page.maxLimit == considered, words


@pytest.mark.parametrize("words", ["job query -n 0", f"task query {JOB} -n 0", "job stop -n 0"])
def test_a_limit_of_none_is_refused(peloton: Terminal, words: str) -> None:
    printed = peloton(*words.split())
    assert (printed.code, "0 is not in the range 1<=x<=" in printed.err) == (64, True)
    assert not peloton.cluster.calls


def test_a_watched_listing_is_printed_when_it_has_changed() -> None:
    states = iter(("RUNNING", "RUNNING", "SUCCEEDED"))
    paused: list[float] = []

    def pause(seconds: float) -> None:
        paused.append(seconds)
        if len(paused) == 3:
            raise KeyboardInterrupt

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        watching.repeat(lambda: click.echo(next(states)), pause)
    assert printed.getvalue() == "RUNNING\n\nSUCCEEDED\n"
    assert paused == [watching.EVERY_S] * 3


@pytest.mark.parametrize(
    "words", ["job query", "task list JOB", "task query JOB", "host list", "respool dump"]
)
def test_listings_can_be_watched(peloton: Terminal, words: str) -> None:
    assert "--watch" in peloton(*words.split(), "--help").out


def test_a_host_is_shown_with_a_line_for_each_run() -> None:
    runs = [ops_pb2.HostRun(pod=f"job-{number}-1", phase="STARTED") for number in range(2)]
    shown = [*host_lines(ops_pb2.ShowHostResponse(host=ops_pb2.Host(name="h1"), runs=runs))]
    assert [line.split("|")[0].strip() for line in shown[-3:]] == ["Pod", "job-0-1", "job-1-1"]
    assert not any("\n" in line for line in shown)


def test_amounts_of_pools_are_rounded_as_elsewhere() -> None:
    kind = ops_pb2.PoolKind(kind="cpu", entitlement=2.399999, demand=1 / 3, allocation=0.5)
    (row,) = pool_rows([ops_pb2.PoolStanding(path="/a", kinds=[kind])])
    assert row[6:9] == ("2.4", "0.333", "0.5")
