"""What clients have kept with their workflows: a text that nobody here reads.

Takes it from a request, or ends the call. It must not let a job keep more than it can carry with
each of its workflows.
"""

from __future__ import annotations

from typing import Any

from peloton.gateway.cluster.cluster_client import Code, Context, end

OPAQUE_BYTES_MAX = 16 * 1024
"""A job keeps that of its last ten workflows, and every answer about it has them."""


def opaque_of(sent: Any, context: Context) -> str:
    """The text that a request brings."""
    text: str = sent.opaque_data.data
    size = len(text.encode())
    if size > OPAQUE_BYTES_MAX:
        wrong = f"{size} bytes, the limit is {OPAQUE_BYTES_MAX}"
        end(context, Code.INVALID_ARGUMENT, text=wrong, field="opaque_data.data")
    return text
