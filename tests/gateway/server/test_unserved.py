"""Which calls of the contract nothing serves yet. The list only shrinks.

`golden/unserved.txt` has them. After a call was implemented write it anew, and read what changed:

    python -m tests.gateway.server.test_unserved
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import grpc

from peloton.gateway.server.unimplemented import services
from peloton.gateway.translate.short_names import SHORT
from tests.gateway.fleet_fixture import WAIT_S_MAX, Deployment, running

GOLDEN = Path(__file__).parent / "golden" / "unserved.txt"


def unserved(deployment: Deployment) -> list[str]:
    """Every call that is answered as not supported, found by calling it with an empty request."""
    found = []
    for service, methods in services().items():
        for method in methods:
            call = deployment.channel.unary_unary(f"/{service}/{method}")
            try:
                call(b"", timeout=WAIT_S_MAX)
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    name = f"{service.rpartition('.')[2]}.{method}"
                    assert error.details() == f"{name} is not supported yet"
                    found.append(f"{service}.{method}")
    return sorted(found)


def test_exactly_these_calls_are_not_served(deployment: Deployment) -> None:
    assert len(services()) == 23 + len(SHORT), "every service of the contract"
    assert unserved(deployment) == GOLDEN.read_text().splitlines()


def test_a_call_is_served_under_both_names_or_neither(deployment: Deployment) -> None:
    found = unserved(deployment)
    for long, short in SHORT.items():
        of_long = [name.rpartition(".")[2] for name in found if name.startswith(long + ".")]
        of_short = [name.rpartition(".")[2] for name in found if name.startswith(short + ".")]
        assert of_long == of_short


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made, running(Path(made)) as fleet:
        GOLDEN.write_text("\n".join(unserved(fleet)) + "\n")
    sys.stdout.write(GOLDEN.read_text())
