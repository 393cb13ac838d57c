"""`peloton top`: one page of pools, hosts and jobs, whatever the size of the cluster."""

from __future__ import annotations

import io
import json

from rich.console import Console

from peloton.cli.cluster import top, top_screen
from peloton.cli.cluster.top_page import Overview, Section
from peloton.ops.v1 import ops_pb2 as ops
from peloton.sdk.errors import ServiceUnavailable
from tests.cli.terminal import Terminal
from tests.sdk.fakes import JOB


def hosts(count: int, *, state: str = "UP") -> list[ops.Host]:
    whole = ops.Amounts(cpu=4, memory_mb=2048, disk_mb=100)
    free = ops.Amounts(cpu=3, memory_mb=1024, disk_mb=100)
    return [
        ops.Host(name=f"h{number}", state=state, runs=number, capacity=whole, free=free)
        for number in range(count)
    ]


def test_without_a_terminal_it_is_printed_once(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING", "PENDING", "FAILED")
    peloton.cluster.hosts = hosts(2) + hosts(1, state="LOST")
    lines = peloton.lines("top")
    assert lines[0].endswith("Z  3 of 12 cpus, 3072 of 6144 MB of memory in use")
    assert lines[2] == "Pools: 2"
    assert [line.split("|")[0].strip() for line in lines[4:6]] == ["/", "/hello"]
    assert "0.5 of 12" in lines[4]
    assert lines[7] == "Hosts: 1 LOST, 2 UP"
    assert [line.split("|")[1].strip() for line in lines[9:12]] == ["LOST", "UP", "UP"]
    assert lines[13] == "Jobs that have not ended: 1"
    row = [cell.strip() for cell in lines[15].split("|")]
    assert (row[0], row[1], row[2], row[5:9]) == (JOB, "hello_world", "RUNNING", [*"3111"])
    data = json.loads(peloton("top", "-o", "json").out)
    assert (data["jobs"][0]["id"], data["hosts"][0]["state"]) == (JOB, "LOST")
    assert peloton("top", "-o", "name").out == f"{JOB}\n"


def test_it_asks_for_one_page_and_shows_few_rows(peloton: Terminal) -> None:
    peloton.cluster.hosts = hosts(1000)
    printed = peloton("top", "--once", "-n", "5")
    assert printed.code == 0 and len(printed.out.splitlines()) < 20
    assert "Hosts: 1000 UP (5 shown)" in printed.out
    spec = peloton.cluster.called("Query")[-1].request.spec
    assert (spec.pagination.limit, spec.pagination.maxLimit) == (5, 100)
    ended = (4, 5, 6)  # SUCCEEDED, FAILED, KILLED
    assert spec.jobStates and not set(spec.jobStates) & set(ended)


def test_it_is_drawn_again_and_survives_a_silent_server(peloton: Terminal) -> None:
    page = Overview("now", (Section("Jobs: 1", ("ID", "State"), [("a", "RUNNING")]),), {})
    looks = iter((page, ServiceUnavailable("no answer"), page._replace(title="later")))
    drawn: list[Overview] = []
    pauses: list[float] = []

    def look() -> Overview:
        found = next(looks)
        if isinstance(found, Exception):
            raise found
        return found

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    top.repeat(look, drawn.append, pause=pause)
    assert [one.title for one in drawn] == ["now", "no answer; trying again", "later"]
    assert drawn[1].sections == page.sections, "what was seen last stays"
    assert min(pauses) >= top.EVERY_S


def test_on_a_terminal_it_fits_the_width() -> None:
    header = ("ID", "Name", "State", "Pool", "Age", "Tasks", "Pending", "Running", "Failed")
    job = "8c95fa0c-d174-40cd-ac17-6a1a166ec1a8"
    rows = [(job, "hello_world " * 9, "RUNNING", "/default", "12 s", "1", "2", "3", "4")]
    plain = Console(file=(text := io.StringIO()), width=80, height=24)
    plain.print(top_screen.drawn(Overview("now", [Section("Jobs", header, rows)], {}), plain.size))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1].split()[:2] == [job[:8], "hello_world"] and "RUNNING" in lines[-1]
    assert "not shown: " in lines[2], "columns that do not fit are named"


def test_on_a_terminal_it_fits_the_height() -> None:
    rows = [(f"job{number}", "RUNNING") for number in range(50)]
    sections = [Section(f"part {name}", ("ID", "State"), rows) for name in "abc"]
    page = Overview("\x1b[31mtitle", sections, {})
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=24)
    with top_screen.screen(console) as draw:
        draw(page)
    plain = Console(file=(text := io.StringIO()), width=80, height=24)
    plain.print(top_screen.drawn(page, plain.size))
    assert len(text.getvalue().splitlines()) <= 24
    assert all(f"part {name} (of these" in text.getvalue() for name in "abc")
    assert "\\x1b[31mtitle" in text.getvalue(), "what steers a terminal is escaped"
    assert "job0" in out.getvalue()
