"""The rare branches of a cluster by name: a sweep of storms should reach each of them.

Turns names into where a branch is seen: a committed fact and its cause, a reason in a story, a
statement to the store and its reply, a state of the world. `observer.py` detects them. A branch
that every world reaches, or none can, has no name: no task is throttled while there are no services
(tests/actors), and no peer is dropped as long as no view misses a live member and no peer shell
breaks (tests/core/links/test_parcels.py, test_network.py).
"""

from __future__ import annotations

from peloton.chaos.cluster import tiny

FACTS: dict[tuple[str, str, str], str] = {
    ("task", "LaunchRefused", "RunRefused"): "a host refused a launch",
    ("task", "AdmissionReleasing", "RunGone"): "a run was cancelled, and its resources released",
    ("task", "AdmissionReleasing", "RunRefused"): "a launch was refused to a task that is to end",
    ("task", "AdmissionReleasing", "SetTaskGoal"): "a task was stopped before it ran",
    ("task", "AdmissionQueued", "Queued"): "a task waited in its pool's queue",
    ("task", "LaunchAccepted", "Accepted"): "a launch was repeated before its run had started",
    ("task", "RunEnded", "RunGone"): "a run was over that never began",
    ("task", "TaskForgotten", "TicketReleased"): "a deleted task released its resources first",
    ("task", "TaskForgotten", "SetTaskGoal"): "a task that had ended was deleted",
    ("task", "TaskKilling", "SetTaskGoal"): "a run was killed",
    ("task", "TaskRetried", "Ended"): "a failed run was retried",
    ("task", "TaskRetried", "RunGone"): "a run that was cancelled by its host's loss was retried",
    ("task", "TaskWithdrawn", "SetTaskGoal"): "a task was withdrawn before it requested admission",
    ("host", "HostLost", "Due"): "a host was out of reach past its timeout",
    (
        "host",
        "HostReachable",
        "RecheckBackend",
    ): "a host checked its backend again after a recovery",
    ("host", "HostUnreachable", "BackendDown"): "a host was out of reach",
    ("host", "KillOrdered", "KillRun"): "a kill was ordered",
    ("host", "ProcessesEnded", "RunsListed"): "an end was learned from a listing",
    ("host", "ProcessesStarted", "RunsListed"): "a start was learned from a listing",
    ("host", "SetEnded", "RunsListed"): "ends of a whole set were learned from a listing",
    ("host", "SetStarted", "RunsListed"): "starts of a whole set were learned from a listing",
    ("host", "SetEnded", "RunsEnded"): "a whole set ended at once",
    ("host", "SetForgotten", "RunSeen"): "a whole set was forgotten at once",
    ("host", "RunsRefused", "Launch"): "a launch was refused, in the journal",
    ("job", "InstancesStopped", "StopJob"): "some instances were stopped",
    ("job", "DeletionOrdered", "DeleteJob"): "a job was deleted",
    ("job", "OverridesGiven", "CreateJob"): "an instance had a config of its own",
    ("job", "MessageDeadLettered", "StopJob"): "a poison message became a dead letter",
    ("job", "SliceVanished", "SliceGone"): "a slice was gone before its job",
    ("job", "StopOrdered", "StopJob"): "a whole job was stopped",
    ("job", "RequestAnswered", "DeleteJob"): "the answer to a deletion was kept for repeats",
    ("job", "Revived", "revived"): "a job acted again after its end",
    ("slice", "MembersBegun", "Pursue"): "a limited job began more members by itself",
    ("slice", "MembersBegun", "SetSliceGoal"): "a limited job began its first members",
    ("slice", "Revived", "revived"): "a slice acted again after its end",
    ("slice", "SliceForgotten", "Pursue"): "a slice was deleted",
    ("respool", "PoolConfigured", "UpdatePool"): "a pool changed with jobs in flight",
    ("shard", "CheckpointCut", ""): "a checkpoint was cut",
    ("shard", "EntitiesEvicted", ""): "ended entities left the memory",
}
REASONS: dict[tuple[str, str], str] = {
    ("host", "a list from before the backend went away"): "an old listing was ignored",
    ("host", "ends that are known already"): "an end was reported twice",
    ("host", "1 unowned runs are killed first"): "an orphaned run kept its host from being up",
    ("host", "runs that nobody owns are killed"): "a run that nobody owns was killed",
    ("host", "host is unreachable"): "a launch met a host out of reach",
    ("host", "host is reconciling"): "a launch met a host that is not reconciled",
    ("host", "host unreachable for"): "the runs of a lost host were given up",
    ("host", "pinged the backend"): "a host out of reach pinged its backend",
    ("host", "insufficient resources on the host"): "two placers chose the same resources",
    ("host", "spread:"): "two placers chose one host for instances that are kept apart",
    ("host", "the host does not meet the constraint"): "two placers broke a condition on tasks",
    ("host", "port 8080 is taken"): "two placers chose one fixed port",
    ("job", "it has ended"): "a job that had ended was stopped",
    ("job", "it is being deleted already"): "a job was deleted twice",
    ("job", "it is being stopped already"): "a job was stopped twice",
    ("job", "a job needs at least one instance"): "a bad request was refused",
    ("respool", "an older report of this inventory"): "an older capacity came behind a newer",
    ("slice", "goal known"): "an absolute goal was sent twice",
    ("slice", "no host fits"): "no host had enough free resources",
    ("slice", "no host: the placer knows no hosts yet"): "a placer had just started",
    ("task", "Task LOST: host unreachable"): "a run was lost with its host",
    (
        "task",
        "Task LOST: the backend does not know the run any more",
    ): "the backend did not know a run any more",
    ("task", "cancelled before it started"): "a launch was overtaken by its cancel",
    ("task", "end of another run"): "the end of an older run was ignored",
    ("task", "no such"): "a message came for a task that is gone",
    ("task", "admission no longer wanted"): "an admission came for a task that is to end",
    ("task", "stopped before it was launched"): "a task was stopped after its admission",
    ("task", "killed"): "a task ended by its kill",
    (
        "inventory",
        "the inventory is not open yet",
    ): "a host sent its report before its inventory was open",
}
_CALLS = ("Advance", "Bump", "Free", "MoveFloor", "WriteTogether")
_FAILURES = {
    "timeout, before it was begun": "was late",
    "timeout, half accepted": "was half accepted",
    "timeout, though it was done": "was done, and its answer lost",
    "unavailable": "was refused by the store",
    "connection closed": "met a power cut",
}
STATEMENTS: dict[tuple[str, str], str] = {
    **{
        (call, text): f"{call} {failure}"
        for call in _CALLS
        for text, failure in _FAILURES.items()
        if (call, text) not in (("Free", "connection closed"), ("MoveFloor", "connection closed"))
    },
    ("Advance", "NotApplied"): "an owner was fenced at a frame, or found its own write done",
    ("WriteTogether", "NoneApplied"): "a round was refused because of some of its shards",
    ("Bump", "NotApplied"): "a claim was overtaken by another",
    ("Free", "NotApplied"): "a hand-over met a newer owner",
    ("MoveFloor", "NotApplied"): "a floor was moved by an overtaken owner, or twice",
    ("InsertRow FrameRow", "timeout, on its way"): "a frame's row was late",
    (
        "InsertRow FrameRow",
        "timeout, though it was done",
    ): "a frame's row was written, its answer lost",
    ("InsertRow PartRow", "timeout, on its way"): "a checkpoint's part was late",
    (
        "InsertRow PartRow",
        "timeout, though it was done",
    ): "a checkpoint's part was written, its answer lost",
    ("InsertRow EndedRow", "timeout, on its way"): "a final state was late",
    ("InsertRow EndedRow", "unavailable"): "a final state was refused by the store",
    ("DeleteBucket", "timeout, on its way"): "a deletion was late",
    ("ReadBucket", "unavailable"): "a recovery could not read its checkpoint",
    ("ReadSegment", "unavailable"): "a recovery could not read its tail",
    ("ReadRegister", "unavailable"): "a claim could not read its register",
    ("ReadEnded", "unavailable"): "a final state could not be read",
}
STATES: dict[str, str] = {
    "two owners": "a shard is open under two epochs at once",
    "an old owner wakes": "a process uses a shard that another daemon has claimed",
    "an owner without its node": "a shard is open while its owner node is gone or another's",
    "a frozen owner overtaken": "a process is frozen while another daemon claims its shard",
    "nobody": "no daemon is alive",
    "nobody owns a shard": "a shard is open nowhere",
    "recovery from a checkpoint": "with no frames after it",
    "recovery from a checkpoint and a tail": "both were read",
    "recovery from a tail": "no checkpoint yet",
    "a slice ended before it began": "none of its instances had begun when its job was stopped",
    "recovery behind a slice that ended before it began": "and had left memory by then",
    "held facts lost": "an owner ended while facts waited for a frame",
    "the sixth owner": "a shard changed hands five times",
    "a checkpoint left behind": "a takeover found a checkpoint that was never finished",
    "a checkpoint of an older epoch": "the floor that recovery reads was moved by an owner before",
    "a frame behind a takeover": "rows of an older and of a newer epoch have the same position",
    "unfit": "a daemon announced that it cannot serve a group",
    "leaving": "a daemon announced that it leaves",
    "peer out of reach": "a daemon's health names it",
    "journal unclear": "a shard waits for the journal's answer to a write",
    "session in doubt": "a daemon does not know whether it is a member",
    "recovering": "a shard takes time to recover",
    "mail of an older epoch refused": "a shard had received mail of a younger owner first",
    "a gap in the parcels": "a link received a parcel too far ahead",
    "a parcel twice": "a link dropped a repeat",
    "a batch for no route": "a peer refused mail for a shard it does not own",
    "ended while cut off": "a run ended while its machine was out of reach",
    "alive again": "a machine was switched off and runs something again",
    "sent three times": "a client was answered at its third try or later",
    "answered after the storm": "a client got its answer only in the calm",
    "a listing": "all jobs were listed across daemons",
    "absent": "a client asked for a job that is deleted",
    "a gap in a feed": "a follower of changes was told that some are not kept any more",
    "a damaged shard": "a row had rotted, and its shard was halted by name",
    "runs listed as sets": "a machine was asked for its runs as sets, and listed some so",
    "key reused": "a request key with another body was refused",
    "nothing waits at the calm": "a storm ended with all goals reached already",
    "long way back": "all goals were reached only more than a minute after the calm began",
}


def fact_name(kind: str, fact: str, *, cause: str) -> str:
    """Return the branch name of a fact with its cause."""
    return f"{kind}: {fact} <- {cause or 'the runtime'}"


def reason_name(kind: str, reason: str) -> str:
    """Return the branch name of a reason."""
    return f"{kind}: {reason!r}"


def limit_name(name: str) -> str:
    """Return the branch name of a limit that was met."""
    return f"limit: {name}"


def statement_name(statement: str, reply: str) -> str:
    """Return the branch name of a statement with its reply."""
    return f"store: {statement}: {reply}"


BRANCHES: dict[str, str] = {
    **{fact_name(kind, fact, cause=cause): text for (kind, fact, cause), text in FACTS.items()},
    **{reason_name(kind, reason): text for (kind, reason), text in REASONS.items()},
    **{statement_name(statement, reply): text for (statement, reply), text in STATEMENTS.items()},
    **{f"world: {name}": text for name, text in STATES.items()},
    **{limit_name(name): each.what for name, each in tiny.ALL_TINY.items()},
}
