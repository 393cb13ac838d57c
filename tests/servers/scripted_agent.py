"""An agent of Mesos, and the master that knows it, as far as the files of runs go.

A test says what is in sandboxes, and how an answer goes wrong.
"""

from __future__ import annotations

import base64
import json
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
READ_BYTES_MAX = 64 * 1024


class ScriptedAgent:
    """Serves from its construction until `close`; master and agent in one."""

    def __init__(self, framework: str) -> None:
        self.framework = framework
        self.folders: dict[str, dict[str, bytes | int]] = {}
        """By path: names with their bytes, or with the mode of what is no regular file."""
        self.executors: list[str] = []
        self.ended: list[tuple[int, str]] = []
        """Earlier containers of executors, by number and id."""
        self.tasks: dict[str, dict[str, str]] = {}
        """Of executors that live: names by id."""
        self.hostnames = ["h1"]
        self.before: list[Any] = []
        """Other entries of the master's list, which come first."""
        self.advertised = ""
        """Where the master says that it is, if that is somewhere else."""
        self.authorization = ""
        """What a request must carry."""
        self.asked: list[Json] = []
        self.broken: Callable[[Json], bytes | None] = lambda call: None
        """The bytes that a call is answered instead, after which the connection ends."""
        self.released = threading.Event()
        self.silent_for: set[str] = set()
        """Calls of these types are answered when `released` is set."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def sandbox(self, executor: str) -> str:
        return f"/frameworks/{self.framework}/executors/{executor}/runs/latest"

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def state(self) -> Json:
        """`/state`: of those that ended the last one is the newest."""
        self.asked.append({"type": "state"})
        ended = [{"id": name, "directory": f"/work/{name}/{at}"} for at, name in self.ended]
        live = [
            {
                "id": name, "directory": self.sandbox(name),
                "tasks": [{"id": k, "name": v} for k, v in self.tasks.get(name, {}).items()],
            }
            for name in self.executors
        ]  # fmt: skip
        ours = {"id": self.framework, "executors": live, "completed_executors": ended}
        return {"frameworks": [{"id": "other", "executors": [{"id": "x"}]}, ours]}

    def answer(self, call: Json) -> tuple[int, Any]:
        """As the real one answers, seen there."""
        self.asked.append(call)
        if call["type"] == "GET_AGENTS":
            agents = [
                {
                    "agent_info": {"hostname": name},
                    "pid": f"slave(1)@{self.advertised or self.address}",
                }
                for name in self.hostnames
            ]
            return 200, {"get_agents": {"agents": [*self.before, *agents]}}
        if call["type"] == "LIST_FILES":
            return self._listed(call["list_files"]["path"])
        return self._read(**call["read_file"])

    def _listed(self, path: str) -> tuple[int, Any]:
        if path not in self.folders:
            return 404, None
        infos = [
            {
                "path": f"{path}/{name}", "nlink": 1, "uid": "nobody", "gid": "nogroup",
                "size": len(found) if isinstance(found, bytes) else 0,
                "mode": stat.S_IFREG | 0o644 if isinstance(found, bytes) else found,
                "mtime": {"nanoseconds": 1_500_000_000},
            }
            for name, found in self.folders[path].items()
        ]  # fmt: skip
        return 200, {"list_files": {"file_infos": infos}}

    def _read(self, path: str, offset: int, length: int) -> tuple[int, Any]:
        folder, _, name = path.rpartition("/")
        found = self.folders.get(folder, {}).get(name)
        if not isinstance(found, bytes):
            return (404, None) if found is None else (400, "Cannot read a directory.\n")
        data = found[offset : offset + min(length, READ_BYTES_MAX)]
        return 200, {"read_file": {"size": len(found), "data": base64.b64encode(data).decode()}}


@contextmanager
def scripted(framework: str) -> Iterator[ScriptedAgent]:
    agent = ScriptedAgent(framework)
    try:
        yield agent
    finally:
        agent.close()


def _handler(agent: ScriptedAgent) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:  # noqa: N802
            denied = agent.authorization != self.headers.get("Authorization", "")
            self._send(
                401 if denied else 200, b"" if denied else json.dumps(agent.state()).encode()
            )

        def do_POST(self) -> None:  # noqa: N802
            call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if agent.authorization != self.headers.get("Authorization", ""):
                self._send(401, b"")
                return
            if call["type"] in agent.silent_for:
                agent.released.wait()
                self.close_connection = True
                return
            status, body = agent.answer(call)
            broken = agent.broken(call)
            if broken is not None:
                self.wfile.write(broken)
                self.close_connection = True
            else:
                said = body if isinstance(body, str) else json.dumps(body) if body else ""
                self._send(status, said.encode())

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody reads a log."""

    return Handler
