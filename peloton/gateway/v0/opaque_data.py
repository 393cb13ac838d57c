"""The data that clients keep with their workflows: a text that Peloton does not read.

A text that is too long for a job to carry with each of its workflows ends the call.
"""

from __future__ import annotations

from typing import Any

from peloton.gateway.cluster.cluster_client import Code, Context, end

OPAQUE_BYTES_MAX = 16 * 1024
"""A job keeps that of its last ten workflows, and every answer about it has them."""


def opaque_of(sent: Any, context: Context) -> str:
    """Return the text of a request."""
    text: str = sent.opaque_data.data
    size = len(text.encode())
    if size > OPAQUE_BYTES_MAX:
        wrong = f"{size} bytes, the limit is {OPAQUE_BYTES_MAX}"
        end(context, Code.INVALID_ARGUMENT, text=wrong, field="opaque_data.data")
    return text
