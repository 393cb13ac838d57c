"""ZooKeeper and Cassandra for a benchmark: started for it, or those that run already.

Turns ports into addresses, and no ports into servers of our own in a folder of the run. They are
the tests' servers, small and safe, so figures are of one small node on the same cores; whoever
wants those of a real cluster names its ports. It must not leave a server behind.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from peloton.runtime.adapters import cassandra_schema
from peloton.runtime.adapters.cassandra_session import CassandraSettings, connect
from tests.servers.cassandra import QUICK_START, Cassandra
from tests.servers.process import Server
from tests.servers.zookeeper import ZooKeeper


class MeasuredCassandra(Cassandra):
    """As in production, where its code is compiled well after some thousand requests."""

    without = (QUICK_START,)


class Outside(NamedTuple):
    """Ports on loopback; a pid is 0 where the server is not ours to look at."""

    cassandra: int
    cassandra_pid: int
    zookeeper: int = 0
    zookeeper_pid: int = 0
    data_centre: str = Cassandra.data_centre


def options(parser: argparse.ArgumentParser, *, zookeeper: bool) -> None:
    """How to use servers that run."""
    text = "0: one is started for the run  [default: %(default)s]"
    parser.add_argument("--cassandra-port", type=int, default=0, help=text)
    parser.add_argument("--data-centre", default=Cassandra.data_centre, help="of that Cassandra")
    if zookeeper:
        parser.add_argument("--zookeeper-port", type=int, default=0, help=text)


@contextlib.contextmanager
def outside(asked: argparse.Namespace, folder: Path) -> Iterator[Outside]:
    """What `options` asked for, until the end."""
    ports: dict[type[Server], int] = {MeasuredCassandra: asked.cassandra_port}
    if hasattr(asked, "zookeeper_port"):
        ports[ZooKeeper] = asked.zookeeper_port
    pids = dict.fromkeys(ports, 0)
    with contextlib.ExitStack() as stack:
        begun: list[Server] = []
        for cls in [cls for cls, port in ports.items() if not port]:
            server = cls(folder / cls.name)
            stack.callback(server.kill)
            server.launch()
            begun.append(server)
        for server in begun:
            server.wait_until_ready()
            assert server.process is not None
            ports[type(server)], pids[type(server)] = server.port, server.process.pid
        yield Outside(
            ports[MeasuredCassandra],
            pids[MeasuredCassandra],
            ports.get(ZooKeeper, 0),
            pids.get(ZooKeeper, 0),
            asked.data_centre,
        )


def keyspace(outside: Outside, name: str) -> CassandraSettings:
    """The journal's tables under this name, made where they are missing."""
    settings = CassandraSettings(port=outside.cassandra, keyspace=name)
    with contextlib.closing(connect(settings, keyspace=False)) as connected:
        cassandra_schema.apply(connected, name, replication={outside.data_centre: 1})
    return settings
