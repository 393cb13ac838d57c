"""Calls to this process's own server with requests and answers in protobuf's JSON form."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

import grpc
from google.protobuf import descriptor_pool, json_format
from google.protobuf.message import EncodeError
from google.protobuf.message_factory import GetMessageClass

from peloton.gateway.server.inner_calls import InnerRequest
from peloton.gateway.server.serving import Server
from peloton.runtime.core.principal import Principal

CODES = {code.value[0]: code.name for code in grpc.StatusCode}
REQUEST_KEY = "peloton-request-key"
ANSWER_BYTES_MAX = 64 * 1024
"""Of an answer: it is turned into JSON on the loop of all calls that wait."""
TOO_LARGE = "ANSWER_TOO_LARGE"


class JsonAnswer(NamedTuple):
    """The answer to a call. `code` is empty for success, else the name of the status, or of the
    field that is set in the error inside of a v0 answer."""

    code: str
    text: str = ""
    answer: dict[str, Any] = {}


class JsonCall(NamedTuple):
    """A call of a method by its full name, such as `peloton.api.v0.job.JobManager.Get`."""

    method: str
    request: bytes
    who: Principal
    request_key: str
    within_s: float


async def json_call(server: Server, call: JsonCall) -> JsonAnswer:
    """Make a call of the server's own process."""
    try:
        described = descriptor_pool.Default().FindMethodByName(call.method)
    except KeyError:
        return JsonAnswer("UNIMPLEMENTED", f"there is no method {call.method}")
    sent = GetMessageClass(described.input_type)()
    try:
        json_format.ParseDict(json.loads(call.request), sent)
        data = sent.SerializeToString()
    except (json_format.ParseError, EncodeError, ValueError) as error:
        return JsonAnswer("INVALID_ARGUMENT", f"{described.input_type.full_name}: {error}")
    service, _, name = call.method.rpartition(".")
    made = InnerRequest(
        f"/{service}/{name}",
        data,
        call.who,
        call.within_s,
        ((REQUEST_KEY, call.request_key),),
    )
    found = await asyncio.wrap_future(server.call(made))
    if found.code:
        return JsonAnswer(CODES.get(found.code, "UNKNOWN"), found.text)
    if len(found.data) > ANSWER_BYTES_MAX:
        text = f"{len(found.data)} bytes, actors get {ANSWER_BYTES_MAX}: ask for less"
        return JsonAnswer(TOO_LARGE, text)
    answer = GetMessageClass(described.output_type).FromString(found.data)
    return _inner_error(answer) or JsonAnswer("", "", json_format.MessageToDict(answer))


def _inner_error(answer: Any) -> JsonAnswer | None:
    """Return the error inside of an answer that came with status OK, as v0 has them."""
    if "error" not in answer.DESCRIPTOR.fields_by_name:
        return None
    if answer.DESCRIPTOR.fields_by_name["error"].message_type is None:
        return None
    for field, value in answer.error.ListFields():
        return JsonAnswer(field.name, str(getattr(value, "message", value)))
    return None
