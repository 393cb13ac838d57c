"""Turns gRPC errors, and errors inside of v0 answers, into the tree of `errors`.

A v0 answer is often OK and carries its error inside; a caller must not have to search for it.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import grpc

from peloton.sdk import errors

BY_CODE: dict[grpc.StatusCode, type[errors.PelotonError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: errors.BadSpec,
    grpc.StatusCode.OUT_OF_RANGE: errors.BadSpec,
    grpc.StatusCode.NOT_FOUND: errors.NotFound,
    grpc.StatusCode.ALREADY_EXISTS: errors.AlreadyExists,
    grpc.StatusCode.ABORTED: errors.Conflict,
    grpc.StatusCode.FAILED_PRECONDITION: errors.Conflict,
    grpc.StatusCode.PERMISSION_DENIED: errors.Denied,
    grpc.StatusCode.UNAUTHENTICATED: errors.Denied,
    grpc.StatusCode.UNAVAILABLE: errors.ServiceUnavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.TimedOut,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.TryLater,
    grpc.StatusCode.UNIMPLEMENTED: errors.Unsupported,
}

BY_REASON: dict[str, type[errors.PelotonError]] = {
    "ALREADY_EXISTS": errors.AlreadyExists,
    "ASKED_JOB": errors.Conflict,
    "BAD_COMPONENT": errors.BadSpec,
    "BAD_POOL": errors.BadSpec,
    "BUSY": errors.Conflict,
    "CANNOT_LAUNCH": errors.Conflict,
    "CONFLICT": errors.Conflict,
    "DELETING": errors.Conflict,
    "HAS_RUNS": errors.Conflict,
    "INCOMPLETE": errors.ServiceUnavailable,
    "INSUFFICIENT_OFFER_RESOURCES": errors.Conflict,
    "INVALID_CONFIG": errors.BadSpec,
    "INVALID_SCHEDULE": errors.BadSpec,
    "IN_MAINTENANCE": errors.Conflict,
    "MISMATCH_STATUS": errors.Conflict,
    "NAME_TAKEN": errors.AlreadyExists,
    "NOT_DOWN": errors.Conflict,
    "NOT_FOUND": errors.NotFound,
    "NOT_LEAF": errors.Conflict,
    "NOT_TERMINAL": errors.Conflict,
    "NO_HOLD": errors.NotFound,
    "NO_HOST": errors.NotFound,
    "NO_POOL": errors.NotFound,
    "NO_VOLUME": errors.NotFound,
    "NO_WORKFLOW": errors.NotFound,
    "OTHER_VERSION": errors.StaleVersion,
    "POOL_EXISTS": errors.AlreadyExists,
    "REQUEST_KEY_REUSED": errors.Conflict,
    "TERMINATED": errors.Conflict,
    "TERMINATING": errors.Conflict,
    "VIOLATES_SLA": errors.Conflict,
    "VOLUME_HELD": errors.Conflict,
    "WRONG_SOURCE": errors.Conflict,
}
"""By the code of a refusal, which is more exact than the status."""

# Some refusals came from the original as INTERNAL, and clients know them by their text only.
DOMAIN = "peloton"
"""Of the reasons that are ours."""
STILL_RUNNING = "Job is not in a terminal state"

# What gRPC reports of a server that speaks another protocol.
NO_HTTP2 = "Failed parsing HTTP/2"
NO_GRPC = "NO_GRPC"
# And of an address where there is none.
NOBODY_LISTENS = "failed to connect to all addresses"

# What a server puts before its text: `config.defaultConfig.resource.cpuLimit: -1.0 is negative`.
# Resources of pools stand there by their kinds: `config.resources[cpu].limit: -2.0 is negative`.
PATH = re.compile(r"config\.(?P<path>\w+(?:\.\w+|\[\w+\])*): (?P<text>.+)", re.DOTALL)
# So does the original, in words.
RESOURCE = re.compile(r"resource (?P<kind>cpu|memory|disk|gpu): (?P<text>.+)", re.DOTALL)

BY_FIELD: dict[str, type[errors.PelotonError]] = {
    "alreadyExists": errors.AlreadyExists,
    "getRuntimeFail": errors.NotFound,  # of Get: there is no such job
    "err": errors.BadSpec,  # an invalid query
    "invalidConfig": errors.BadSpec,
    "invalidJobId": errors.BadSpec,
    "invalidPath": errors.BadSpec,
    "invalidResourcePoolConfig": errors.BadSpec,
    "invalidRespool": errors.BadSpec,
    "isBusy": errors.Conflict,
    "isNotLeaf": errors.Conflict,
    "jobNotFound": errors.NotFound,
    "notDeleted": errors.Conflict,
    "notFound": errors.NotFound,
    "notRunning": errors.Conflict,
}


def status(error: grpc.RpcError, address: str) -> errors.PelotonError:
    """Return the exception for a call that ended with a status other than OK."""
    code = error.code()
    told = details(error)
    found = _unanswered(error, address, told=told) or _refused(
        code, error.details() or code.name, told=told
    )
    if told.reason:
        found.reasons = (told.reason, code.name)
    return found


def _unanswered(
    error: grpc.RpcError, address: str, *, told: Details
) -> errors.ServiceUnavailable | None:
    code, text = error.code(), error.details() or error.code().name
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return errors.TimedOut(f"{address} did not answer in time", kind=code.name)
    if code not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return None
    if NO_HTTP2 in text:
        text = f"{address} is there and speaks no gRPC: is that the address of its --http?"
        return errors.ServiceUnavailable(text, kind=NO_GRPC)
    if NOBODY_LISTENS in text:
        text = f"{address} does not answer: {text}"
        return errors.ServiceUnavailable(text, kind=errors.NO_CONNECTION)
    text = f"{address} cannot answer now: {text}"
    return errors.ServiceUnavailable(text, kind=code.name, retry_s=told.retry_s)


def _refused(code: grpc.StatusCode, text: str, *, told: Details) -> errors.PelotonError:
    kind = BY_REASON.get(told.reason) or BY_CODE.get(code, errors.ServerError)
    if code is grpc.StatusCode.INTERNAL and STILL_RUNNING in text:
        kind = errors.Conflict
    if kind is not errors.BadSpec:
        return kind(text, kind=code.name)
    if told.field:
        return errors.BadSpec(told.text, field=told.field, kind=code.name)
    return bad_spec(text, kind=code.name)


class Details(NamedTuple):
    """The details of a status."""

    field: str = ""
    text: str = ""
    retry_s: float = 0.0
    reason: str = ""


def details(error: grpc.RpcError) -> Details:
    """Return the details of google.rpc that came with a status.

    Empty if there are none, or if what came in their place cannot be read.
    """
    # Loaded for errors only, and no command waits for it that has none.
    from google.protobuf.message import DecodeError
    from google.rpc import error_details_pb2
    from grpc_status import rpc_status

    found = Details()
    try:
        status = rpc_status.from_call(error)
    except (ValueError, DecodeError):  # of another call, or no status at all
        return found
    bad, retry = error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    info = error_details_pb2.ErrorInfo()
    for detail in status.details if status else ():
        if detail.Unpack(bad) and bad.field_violations:
            first = bad.field_violations[0]
            found = found._replace(field=first.field.removeprefix("config."))
            found = found._replace(text=first.description)
        elif detail.Unpack(retry):
            found = found._replace(retry_s=retry.retry_delay.ToMilliseconds() / 1000)
        elif detail.Unpack(info) and info.domain == DOMAIN:
            found = found._replace(reason=info.reason)
    return found


def inside(answer: Any, *, fields: tuple[str, ...] = ("error",)) -> Any:
    """Return the answer itself, unless it carries an error in one of `fields`; then that is
    raised."""
    for name in fields:
        if answer.HasField(name):
            raise carried(name, getattr(answer, name))
    return answer


def carried(name: str, error: Any) -> errors.PelotonError:
    """Return the exception for an error message; `Error` wrappers are unwrapped one level deep."""
    if error.DESCRIPTOR.name == "Error":
        for field, value in error.ListFields():
            if field.message_type is not None:
                return carried(field.name, value)
    text = getattr(error, "message", "")
    if name == "outOfRange":
        count = error.instanceCount
        text = f"the job has instances 0 to {count - 1}" if count else "the job has no instances"
        return errors.OutOfRange(text, instance_count=count)
    kind = BY_FIELD.get(name, errors.ServerError)
    if name == "invalidResourcePoolConfig" and text.endswith(" already exists"):
        # The original's field for any config that the rules refuse, a taken name among them.
        return errors.AlreadyExists(text, kind="alreadyExists")
    if kind is errors.BadSpec:
        return bad_spec(text or name, kind=name)
    return kind(text or name, kind=name)


def bad_spec(text: str, *, kind: str) -> errors.BadSpec:
    """Return a BadSpec; a server puts the place first in its text, from the root of what was
    sent."""
    named = PATH.fullmatch(text)
    if named is not None:
        return errors.BadSpec(named["text"], field=named["path"], kind=kind)
    resource = RESOURCE.fullmatch(text)
    if resource is not None:
        # The field becomes a place in the person's file, which does not tell the kind.
        told = f"{resource['kind']} {resource['text']}"
        return errors.BadSpec(told, field=f"resources[{resource['kind']}]", kind=kind)
    return errors.BadSpec(text, kind=kind)
