"""A health check by HTTP: one GET request to a port of this machine.

Turns a probe into whether it was answered with a status from 200 to 399, and a text for people. Of
the answer nothing but its first line is read. Certificates are not verified: what is asked is
whether the process answers, on the loopback interface, for whose name it has none.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl

from peloton.actors.task.health_messages import HttpProbe

ADDRESS = "127.0.0.1"
_LINE_BYTES_MAX = 4096
_STATUS = re.compile(rb"HTTP/\d(?:\.\d)? +(\d{3})(?: |$)")


async def probe(asked: HttpProbe, timeout_s: float) -> tuple[bool, str]:
    """Whether the process answers well in time, and what it answered."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _asked(asked)
    except TimeoutError:
        return False, f"{_name(asked)}: no answer in {timeout_s:g} s"
    except (OSError, ValueError, asyncio.LimitOverrunError) as trouble:
        why = trouble.strerror if isinstance(trouble, OSError) else ""
        return False, f"{_name(asked)}: {why or trouble or type(trouble).__name__}"[:200]


async def _asked(asked: HttpProbe) -> tuple[bool, str]:
    secured = _unverified() if asked.scheme == "https" else None
    reader, writer = await asyncio.open_connection(
        ADDRESS, asked.port, ssl=secured, limit=_LINE_BYTES_MAX
    )
    try:
        writer.write(
            f"GET {asked.path} HTTP/1.1\r\nHost: {ADDRESS}:{asked.port}\r\n"
            "User-Agent: peloton-health-check\r\nAccept: */*\r\nConnection: close\r\n\r\n".encode()
        )
        await writer.drain()
        line = (await reader.readline()).rstrip(b"\r\n")
    finally:
        writer.transport.abort()  # the rest of the answer is of no interest
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    found = _STATUS.match(line)
    if found is None:
        return False, f"{_name(asked)}: the answer is not HTTP"
    status = int(found[1])
    return 200 <= status < 400, f"{_name(asked)}: status {status}"


def _unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _name(asked: HttpProbe) -> str:
    return f"GET {asked.scheme}://{ADDRESS}:{asked.port}{asked.path}"
