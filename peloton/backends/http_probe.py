"""A health check by HTTP: one GET request to a port of this machine.

Reports whether the answer has a status from 200 to 399, and a text for people. Certificates are not
verified: the probe asks whether the process answers, on the loopback interface, for whose name it
has none.
"""

from __future__ import annotations

import asyncio
import functools
import ssl

from peloton.actors.task.run_messages import HttpProbe
from peloton.http_client import BrokenAnswer, Request, status_from

ADDRESS = "127.0.0.1"
HEADERS = {"User-Agent": "peloton-health-check", "Accept": "*/*"}


async def probe(asked: HttpProbe, timeout_s: float) -> tuple[bool, str]:
    """Return whether the process answers well in time, and its answer."""
    authority = f"{ADDRESS}:{asked.port}"
    name = f"GET {asked.scheme}://{authority}{asked.path}"
    tls = _unverified() if asked.scheme == "https" else None
    try:
        async with asyncio.timeout(timeout_s):
            request = Request("GET", asked.path, authority, HEADERS)
            status = await status_from(request, (ADDRESS, asked.port), tls=tls)
    except TimeoutError:
        return False, f"{name}: no answer in {timeout_s:g} s"
    except BrokenAnswer:
        return False, f"{name}: the answer is not HTTP"
    except (OSError, ValueError) as trouble:
        why = trouble.strerror if isinstance(trouble, OSError) else ""
        return False, f"{name}: {why or trouble or type(trouble).__name__}"[:200]
    return 200 <= status < 400, f"{name}: status {status}"


@functools.cache
def _unverified() -> ssl.SSLContext:
    """Return the TLS context of all probes.

    It has none of the machine's certificates: to read those takes longer than a probe, and nothing
    is verified by them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
