"""Machine-readable details of a gRPC status (google.rpc).

The path of a wrong field becomes a BadRequest, the delay after which a repeat is safe and may
succeed a RetryInfo, and the code of a refusal an ErrorInfo of the domain `peloton`; a client finds
them in the trailer `grpc-status-details-bin`. Code and text stay the same, because clients that
ignore details rely on them.
"""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from peloton.printable import escaped

TEXT_BYTES_MAX = 2048
"""Of a status: clients refuse more than 16 KB of trailers, in which a byte may become three."""
DETAILS_BYTES_MAX = 1000
"""Of a text with details, which repeat it twice in base64."""
CUT = " …"
DOMAIN = "peloton"


def status(
    code: grpc.StatusCode,
    text: str,
    *,
    field: str = "",
    retry_s: float | None = None,
    reason: str = "",
) -> grpc.Status | None:
    """Return the status with its details; None if there are none."""
    # Client libraries refuse details whose text differs from that of the status.
    text, field = escaped(text), escaped(field)
    details: list[Any] = []
    if field:
        wrong = error_details_pb2.BadRequest.FieldViolation(field=field, description=text)
        details.append(error_details_pb2.BadRequest(field_violations=[wrong]))
    if retry_s is not None:
        delay = Duration()
        delay.FromMilliseconds(int(retry_s * 1000))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    if reason:
        details.append(error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN))
    if not details or len(text.encode(errors="replace")) > DETAILS_BYTES_MAX:
        return None
    found = status_pb2.Status(code=code.value[0], message=message(text, field=field))
    for detail in details:
        found.details.add().Pack(detail)
    return rpc_status.to_status(found)


def cut(text: str) -> str:
    """Return the text, shortened to fit into a status."""
    data = text.encode(errors="replace")
    if len(data) <= TEXT_BYTES_MAX:
        return text
    return data[: TEXT_BYTES_MAX - len(CUT.encode())].decode(errors="ignore") + CUT


def message(text: str, *, field: str = "") -> str:
    """Return the text with the field path in front."""
    return f"{field}: {text}" if field else text
