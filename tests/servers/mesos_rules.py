"""What a master of Mesos refuses before it looks at a call: shapes, required fields, encodings.

Turns the bytes and headers of a request into a call, or into the code and the words with which a
real master refuses it (tests/contracts/test_mesos_master.py holds them against one). Fields that no
test sends are not looked at.
"""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

JSON = "application/json"
UUID_BYTES = 16
# A name ends with "!" where the field is required, and with "*" where it is a list.
Shape = Mapping[str, Any]
ID: Shape = {"value!": None}
FRAMEWORK: Shape = {"user!": None, "name!": None, "id": ID}
TASK: Shape = {"name!": None, "task_id!": ID, "agent_id!": ID}
OFFERS: Shape = {"offer_ids*": ID}
INVERSE: Shape = {"inverse_offer_ids*": ID}
TASKS: Shape = {"task_infos*": TASK}
OPERATION: Shape = {"launch": TASKS, "launch_group": {"task_group!": {"tasks*": TASK}}}
BODIES: Mapping[str, Shape] = {
    "SUBSCRIBE": {"framework_info!": FRAMEWORK},
    "ACCEPT": {**OFFERS, "operations*": OPERATION},
    "DECLINE": OFFERS,
    "ACCEPT_INVERSE_OFFERS": INVERSE,
    "DECLINE_INVERSE_OFFERS": INVERSE,
    "KILL": {"task_id!": ID, "agent_id": ID},
    "SHUTDOWN": {"executor_id!": ID, "agent_id!": ID},
    "ACKNOWLEDGE": {"agent_id!": ID, "task_id!": ID, "uuid!": bytes},
    "ACKNOWLEDGE_OPERATION_STATUS": {"uuid!": bytes, "operation_id!": ID},
    "RECONCILE": {"tasks*": {"task_id!": ID, "agent_id": ID}},
    "RECONCILE_OPERATIONS": {"operations*": {"operation_id!": ID}},
    "MESSAGE": {"agent_id!": ID, "executor_id!": ID, "data!": bytes},
    "REQUEST": {"requests*": {}},
    "REVIVE": {"roles*": None},
    "SUPPRESS": {"roles*": None},
    "UPDATE_FRAMEWORK": {"framework_info!": FRAMEWORK},
    "TEARDOWN": {},
}
CALL: Shape = {"framework_id": ID, **{name.lower(): body for name, body in BODIES.items()}}
WITHOUT_BODY = ("REVIVE", "SUPPRESS", "TEARDOWN")
KINDS = {str: "string", int: "number", float: "number", bool: "boolean", list: "array"}


class RefusedCall(Exception):
    """With the code and the body of the answer."""

    def __init__(self, code: int, body: str) -> None:
        super().__init__(f"{code}: {body}")
        self.code = code
        self.body = body


def read_call(body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    """The call in a request, by its headers in small letters. Raises RefusedCall."""
    kind = headers.get("content-type")
    if kind is None:
        raise RefusedCall(400, "Expecting 'Content-Type' to be present")
    if kind != JSON:  # the other encoding is not spoken here
        wanted = "application/json or application/x-protobuf"
        raise RefusedCall(415, f"Expecting 'Content-Type' of {wanted}")
    call = _converted(body)
    validate(call)
    accepted = headers.get("accept", "*/*")
    if call["type"] == "SUBSCRIBE":
        if JSON not in accepted and "*/*" not in accepted:
            wanted = "'application/x-protobuf' or 'application/json'"
            raise RefusedCall(406, f"Expecting 'Accept' to allow {wanted}")
        if "mesos-stream-id" in headers:
            text = "Subscribe calls should not include the 'Mesos-Stream-Id' header"
            raise RefusedCall(400, text)
    return call


def _converted(body: bytes) -> dict[str, Any]:
    try:
        call = json.loads(body)
    except ValueError:
        near = body.decode(errors="replace").lstrip("{")[: -1 if body.endswith(b"}") else None]
        text = f"Failed to parse body into JSON: syntax error at line 1 near: {near}"
        raise RefusedCall(400, text) from None
    try:
        if not isinstance(call, dict):
            raise ValueError("Expecting a JSON object")
        missing = [*_missing(call, CALL, "")]
        if missing:
            raise ValueError(f"Missing required fields: {', '.join(missing)}")
    except ValueError as wrong:
        raise RefusedCall(400, f"Failed to convert JSON into Call protobuf: {wrong}") from None
    return call


def _missing(value: Mapping[str, Any], shape: Shape, path: str) -> Iterator[str]:
    """The required fields that are not there. Raises ValueError for what is of another kind."""
    names = {key.rstrip("!*"): (key, inner) for key, inner in shape.items()}
    yield from (path + n for n, (key, _) in names.items() if key.endswith("!") and n not in value)
    for name, (key, inner) in names.items():
        if name not in value:
            continue
        items = value[name]
        if inner is bytes:
            _decode(name, items)
        elif key.endswith("*"):
            if not isinstance(items, list):
                raise ValueError(_not_expected(name, items))
            for at, item in enumerate(items):
                yield from _missing(_message(name, item), inner or {}, f"{path}{name}[{at}].")
        elif inner is not None:
            yield from _missing(_message(name, items), inner, f"{path}{name}.")


def _message(name: str, value: Any) -> Mapping[str, Any]:
    if name == "roles":
        return {}
    if not isinstance(value, dict):
        raise ValueError(_not_expected(name, value))
    return value


def _not_expected(name: str, value: Any) -> str:
    return f"Not expecting a JSON {KINDS.get(type(value), 'object')} for field '{name}'"


def _decode(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        letters = [c for c in text if not (c.isascii() and (c.isalnum() or c in "+/="))]
        why = f"Invalid character '{letters[0]}'" if letters else "Invalid length"
        raise ValueError(f"Failed to base64 decode bytes field '{name}': {why}") from None


def validate(call: Mapping[str, Any]) -> None:
    """What is asked of a call as a whole. Raises RefusedCall."""

    def expect(name: str) -> None:
        if name not in call:
            raise _invalid(f"Expecting '{name}' to be present")

    type_ = call.get("type")
    if type_ not in BODIES:
        raise _invalid("Expecting 'type' to be present")
    if type_ == "SUBSCRIBE":
        expect("subscribe")
        if call.get("framework_id") != call["subscribe"]["framework_info"].get("id"):
            raise _invalid("'framework_id' differs from 'subscribe.framework_info.id'")
        return
    expect("framework_id")
    if type_ not in WITHOUT_BODY:
        expect(type_.lower())
    told = call.get(type_.lower(), {}).get("uuid")
    if told is not None and len(base64.b64decode(told)) != UUID_BYTES:
        raise _invalid("Not a valid UUID")


def _invalid(text: str) -> RefusedCall:
    return RefusedCall(400, f"Failed to validate scheduler::Call: {text}")


def new_uuid() -> str:
    """One for an update, as it stands in JSON."""
    return base64.b64encode(uuid.uuid4().bytes).decode()
