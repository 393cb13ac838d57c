"""Which Peloton holds a busy port; a program with such a command line stands for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from peloton.assembly.listeners import why_not
from peloton.assembly.port_holder import PortHolder, port_holder
from peloton.settings.config import Address


def test_a_busy_port_names_the_peloton_that_holds_it(tmp_path: Path) -> None:
    """What listens there is told by the kernel, not asked."""
    journal = tmp_path / "journal.sqlite"
    program = (
        "import socket, sys\n"
        f"journal = open({str(journal)!r}, 'w')\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "print(server.getsockname()[1], flush=True)\n"
        "sys.stdin.read()\n"
    )
    for words, command in ((["peloton", "minicluster"], "minicluster"), (["other"], "")):
        line = [sys.executable, "-c", program, *words]
        with subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as holder:
            assert holder.stdout is not None
            address = Address("127.0.0.1", int(holder.stdout.readline()))
            found, why = port_holder(address), why_not(address)
            holder.communicate("")
        if command:
            assert found == PortHolder(holder.pid, command, tmp_path)
            text = f"peloton minicluster with pid {holder.pid}, data in {tmp_path}"
            assert why == f"is busy: {text} listens there"
        else:
            assert found is None and why == "is busy: another program listens there"
    assert port_holder(address) is None
