"""The event streams of the original, v0 and v1alpha: statuses of runs for other daemons and tools.

The numbered statuses of `run_statuses.py` become the events of both versions. Both read one stream,
so a client may change its version and go on. A call answers at once with the events there are, as
in the original.
"""

from __future__ import annotations

import uuid
from typing import Any

from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.gateway.cluster.cluster_client import Code, end
from peloton.gateway.cluster.feed import SharedReading, present
from peloton.gateway.private.run_statuses import NumberedStatus, RunStatus, StatusBuffer
from peloton.gateway.server.long_calls import LongCall
from peloton.gateway.translate.texts import ID_NAMESPACE, rfc3339
from peloton.private.eventstream import eventstream_pb2 as v0
from peloton.private.eventstream.v1alpha.event import event_pb2 as event
from peloton.private.eventstream.v1alpha.eventstreamsvc import eventstreamsvc_pb2 as v1

STREAM_CLIENTS = ("peloton-jobmgr", "peloton-resmgr")
"""Who may read; a status is dropped once both have read it."""
LIMIT_DEFAULT, LIMIT_MAX = 100, 10_000
UNSUPPORTED = "Client unsupported"
WIRE_STATES = {
    "RUNNING": mesos.TASK_RUNNING,
    "SUCCEEDED": mesos.TASK_FINISHED,
    "FAILED": mesos.TASK_FAILED,
    "KILLED": mesos.TASK_KILLED,
    "LOST": mesos.TASK_LOST,
}


class EventStreamService:
    """The calls of v0; one method for each, named as on the wire."""

    def __init__(self, statuses: SharedReading[StatusBuffer]) -> None:
        self._statuses = statuses

    async def InitStream(self, sent: v0.InitStreamRequest, call: LongCall) -> Any:
        """Return the id of the stream, and where it begins."""
        Error = v0.InitStreamResponse.Error
        if sent.clientName not in STREAM_CLIENTS:
            unknown = v0.ClientUnsupported(message=UNSUPPORTED)
            return v0.InitStreamResponse(error=Error(clientUnsupported=unknown))
        stream = await present(self._statuses, call)
        return v0.InitStreamResponse(
            streamID=stream.stream_id,
            minOffset=stream.first,
            previousPurgeOffset=stream.purged[sent.clientName],
        )

    async def WaitForEvents(self, sent: v0.WaitForEventsRequest, call: LongCall) -> Any:
        """Return the statuses from an offset on, as many as there are up to the limit."""
        Error = v0.WaitForEventsResponse.Error
        if sent.clientName not in STREAM_CLIENTS:
            unknown = v0.ClientUnsupported(message=UNSUPPORTED)
            return v0.WaitForEventsResponse(error=Error(clientUnsupported=unknown))
        stream = await present(self._statuses, call)
        if sent.streamID != stream.stream_id:
            other = v0.InvalidStreamID(currentStreamID=stream.stream_id)
            return v0.WaitForEventsResponse(error=Error(invalidStreamID=other))
        if not stream.first <= sent.beginOffset <= stream.end:
            outside = v0.OffsetOutOfRange(
                streamID=stream.stream_id,
                minOffset=stream.first,
                maxOffset=stream.end,
                offsetRequested=sent.beginOffset,
            )
            return v0.WaitForEventsResponse(error=Error(outOfRange=outside))
        found = v0.WaitForEventsResponse()
        for numbered in stream.read(sent.beginOffset, limit=limited(sent.limit)):
            found.events.append(event_of(numbered))
        stream.purge(sent.clientName, sent.purgeOffset)
        if sent.purgeOffset > sent.beginOffset:
            wrong = v0.InvalidPurgeOffset(
                purgeOffset=sent.purgeOffset, beginOffset=sent.beginOffset
            )
            found.error.invalidPurgeOffset.CopyFrom(wrong)
        return found


class PodEventStreamService:
    """The calls of v1alpha; one method for each, named as on the wire."""

    def __init__(self, statuses: SharedReading[StatusBuffer]) -> None:
        self._statuses = statuses

    async def InitStream(self, sent: v1.InitStreamRequest, call: LongCall) -> Any:
        """Return the id of the stream, and where it begins."""
        if sent.client_name not in STREAM_CLIENTS:
            end(call, Code.INVALID_ARGUMENT, text=UNSUPPORTED)
        stream = await present(self._statuses, call)
        return v1.InitStreamResponse(
            stream_id=stream.stream_id,
            min_offset=stream.first,
            previous_purge_offset=stream.purged[sent.client_name],
        )

    async def WaitForEvents(self, sent: v1.WaitForEventsRequest, call: LongCall) -> Any:
        """Return the statuses from an offset on, as many as there are up to the limit."""
        if sent.client_name not in STREAM_CLIENTS:
            end(call, Code.INVALID_ARGUMENT, text=UNSUPPORTED)
        stream = await present(self._statuses, call)
        if sent.stream_id != stream.stream_id:
            text = f"invalid stream id, the current one is {stream.stream_id}"
            end(call, Code.INVALID_ARGUMENT, text=text)
        if not stream.first <= sent.begin_offset <= stream.end:
            text = f"offset {sent.begin_offset} is not from {stream.first} to {stream.end}"
            end(call, Code.OUT_OF_RANGE, text=text)
        found = stream.read(sent.begin_offset, limit=limited(sent.limit))
        stream.purge(sent.client_name, sent.purge_offset)
        if sent.purge_offset > sent.begin_offset:
            text = f"purge offset {sent.purge_offset} is beyond {sent.begin_offset}"
            end(call, Code.INVALID_ARGUMENT, text=text)
        return v1.WaitForEventsResponse(events=[pod_event_of(one) for one in found])


class PodEvents:
    """The call `HostManagerService.GetEvents`: all events that are kept."""

    def __init__(self, statuses: SharedReading[StatusBuffer]) -> None:
        self._statuses = statuses

    async def kept(self, call: LongCall) -> list[event.Event]:
        """Return the newest events that are kept, the oldest of them first."""
        stream = await present(self._statuses, call)
        return [pod_event_of(one) for one in stream.newest(LIMIT_MAX)]


def limited(asked: int) -> int:
    """Return how many events one answer has at most."""
    return min(asked, LIMIT_MAX) if asked > 0 else LIMIT_DEFAULT


def event_of(numbered: NumberedStatus) -> v0.Event:
    """Return a status for v0 clients, in the form of Mesos."""
    return v0.Event(
        offset=numbered.offset,
        type=v0.Event.MESOS_TASK_STATUS,
        mesosTaskStatus=_status_of(numbered.status),
    )


def pod_event_of(numbered: NumberedStatus) -> event.Event:
    """Return a status for v1alpha clients."""
    status = numbered.status
    outcome = status.outcome
    return event.Event(
        offset=numbered.offset,
        event_id=str(_identity(status)),
        pod_event=pod.PodEvent(
            pod_id={"value": status.run},
            actual_state=f"POD_STATE_{status.state}",
            timestamp=rfc3339(status.at),
            agent_id=status.host,
            hostname=status.host,
            message=outcome.message if outcome is not None else "",
            reason=outcome.reason if outcome is not None else "",
        ),
    )


def _status_of(status: RunStatus) -> mesos.TaskStatus:
    outcome = status.outcome
    return mesos.TaskStatus(
        task_id=mesos.TaskID(value=status.run),
        state=WIRE_STATES[status.state],
        message=_text(outcome.message or outcome.reason) if outcome is not None else "",
        agent_id=mesos.AgentID(value=status.host),
        timestamp=status.at,
        uuid=_identity(status).bytes,
    )


def _text(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _identity(status: RunStatus) -> uuid.UUID:
    """Return an id that is the same for the same status, by which a client drops repeats."""
    return uuid.uuid5(ID_NAMESPACE, f"status/{status.run}/{status.state}")
