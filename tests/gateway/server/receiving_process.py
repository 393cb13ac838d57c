"""A gRPC server in a process of its own, whose memory a test can measure.

Prints its port; ends with its stdin.
"""

from __future__ import annotations

import sys
from concurrent.futures import Future
from typing import Any

from peloton.gateway.access.authentication import Authentication
from peloton.gateway.cluster.sandboxes import SandboxFiles
from peloton.gateway.grpc_server import build_server
from peloton.runtime.core.health import DaemonHealth


class Silent:
    """A cluster that never answers."""

    def ask(self, *_: Any, **__: Any) -> Future[Any]:
        return Future()

    def read(self, *_: Any) -> None:
        return None

    def daemon_health(self) -> DaemonHealth:
        return DaemonHealth(True, True)


def main() -> None:
    cluster: Any = Silent()
    server, (port,) = build_server(
        cluster,
        ["127.0.0.1:0"],
        authentication=Authentication.open(),
        boxes=SandboxFiles(None, ("127.0.0.1", 1)),
    )
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(0).wait(10)


if __name__ == "__main__":
    main()
