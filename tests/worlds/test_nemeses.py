"""Three enemies of every goal loop: each message missed, each process stopped, stale messages.

A history in which every kind speaks to other shards has to reach its goals whatever single word of
it is lost for good, and whoever dies at saying it: some are drawn at random, `script/points
--nemeses` tries all. Deaths right after effects on machines are in `test_crash_points.py`.
"""

from __future__ import annotations

import random
import secrets
from itertools import count

import pytest

from peloton.actors.engine.messages import LINK_MESSAGES, MESSAGES
from peloton.assembly.kinds import SERVICE_MESSAGES, kinds
from peloton.chaos.cluster.nemeses import (
    SIZES,
    MessageCounter,
    Missed,
    StaleMessages,
    Stopped,
    Troubles,
    every_other,
    first,
    second,
)
from peloton.chaos.cluster.points import WANTED_AFTER_CRASH, ScriptedHistory
from peloton.chaos.cluster.rules.aftermath import faults_of
from peloton.chaos.cluster.world.cluster import SimulatedCluster
from peloton.chaos.seeds import in_time
from peloton.runtime.simulation.membership import MembershipFaults

SHARE_OF_TIME = 1 / 10
"""Of what storms have, for each way to be in trouble."""
NOT_SENT = {
    ("job", "AddOverrides"): "a client's, which repeats it until it is answered",
    ("job", "DropPieces"): "to itself",
    ("client", "MakeCall"): "an extension's, which this history has none of: test_kind_storms",
    ("slice", "RunRefused"): "of its own tasks, in its own shard",
    ("task", "SetTaskGoal"): "of its slice, in its own shard",
    ("task", "PlaceTasks"): "of its slice, in its own shard",
    ("task", "MarkUnschedulable"): "a slice's to its own tasks, in the shard they share",
    ("task", "SetRunLimit"): "of its slice, in its own shard",
    ("slice", "RunNotStarted"): "of its own tasks, in its own shard",
    ("respool", "KeepHour"): "of the root, in the shard they share; a lost one is a gap",
    **dict.fromkeys(
        [("lot", "ParkTicket"), ("task", "TicketParked")],
        "nobody waits for a host for so long: test_parking loses them",
    ),
    ("task", "JoinGang"): "of its slice, in its own shard",
    **dict.fromkeys(
        [
            ("placer", "GangWish"),
            ("slice", "GangPlaced"),
            ("task", "Prepared"),
            ("lot", "RegroupLot"),
        ],
        "no job of it has a gang: test_gang_troubles has some",
    ),
    ("task", "Accepted"): "the answer to a repeated launch: storms have it",
    ("task", "RunGone"): "only after a kill of a run that its host has forgotten: storms have it",
    ("respool", "UpdatePool"): "a client's",
    ("respool", "DeletePool"): "a client's",
    ("lot", "Admit"): "of its pool, in its own shard",
    ("host", "RecheckBackend"): "of its inventory, in its own shard",
    **dict.fromkeys(
        [("host", "LimitRun"), ("backend", "LimitRuns")],
        "no job of it is given another limit; a lost one leaves the keeper with the old one",
    ),
    ("host", "HostGone"): "an operator's",
    ("host", "HostAppeared"): "of a backend that repeats it until the host gives an order",
    ("host", "PortsInUse"): "no other program is on its machines: repeated with each list",
    ("host", "SlackReported"): "no machine of it measures slack: storms have it",
    ("backend", "AddHost"): "an operator's",
    ("backend", "RemoveHost"): "an operator's",
    ("placer", "Declined"): "of a slice that does not use a proposal any more: storms have it",
    ("task", "RunRefused"): "placers with all summaries choose no full host; in storms they do",
    **dict.fromkeys(
        [
            ("job", "LeaveMemory"),
            ("job", "Archived"),
            ("job", "ForgetJob"),
            ("archive", "PeriodCounted"),
            ("archive", "JobGoing"),
            ("archive", "DropJob"),
            ("archive", "DeleteEnded"),
            ("archive", "ArchiveJob"),
        ],
        "jobs leave memory after a day: test_archive has deaths at each step of it",
    ),
    **dict.fromkeys(
        [
            *(("job", "SpecStored"), ("job", "SpecDropped")),
            *(("version", "StoreSpec"), ("version", "DropSpec")),
        ],
        "of its job, in its own shard",
    ),
    **dict.fromkeys(
        [("inventory", name) for name in ("MakeHostPool", "DropHostPool", "AssignHost")],
        "a client's",
    ),
    **dict.fromkeys(
        [("host", "SetHostPool"), ("inventory", "HostPoolSeen")],
        "nobody assigns a host to another pool: test_host_pools repeats and loses the order",
    ),
    **dict.fromkeys(
        [("host", name) for name in ("HoldHost", "ReleaseHold", "LaunchForeign", "KillForeign")],
        "a client's",
    ),
    **dict.fromkeys(
        [("host", name) for name in ("HoldForTask", "ReleaseTaskHolds", "MoveToPool")],
        "a client's",
    ),
    **dict.fromkeys(
        [("slice", "DropInstanceEvents"), ("task", "DropEvents")],
        "a client's: both are committed in one frame",
    ),
    **dict.fromkeys(
        [("inventory", "MoveHostPool"), ("host", "PoolMoveRefused")],
        "no host moves: test_reserving has one, with deaths of its daemon",
    ),
    **dict.fromkeys(
        [("schedule", name) for name in ("CreateSchedule", "PauseSchedule", "DeleteSchedule")],
        "a client's",
    ),
    **dict.fromkeys(
        [
            ("job", "MakeJob"),
            ("rights", "AskRights"),
            ("schedule", "RightsTold"),
            ("schedule", "MakeHandled"),
            ("schedule", "AwaitNoted"),
            ("schedule", "EndTold"),
        ],
        "there is no schedule: test_schedules has one, with deaths of its daemon",
    ),
    **dict.fromkeys(
        [("job", "NoticeHandled"), ("notifier", "PostNotice")],
        "no job tells its end outside: test_notify and test_notifier have some",
    ),
    **dict.fromkeys(
        [
            ("job", "AwaitEnd"),
            ("job", "AwaitNoted"),
            ("job", "EndTold"),
            ("job", "EndHeard"),
            ("job", "NameGranted"),
            ("job", "NameRefused"),
            ("job", "NameFreed"),
            ("name", "ReserveName"),
            ("name", "ClaimName"),
            ("name", "CancelReservation"),
            ("name", "FreeName"),
        ],
        "no job of it waits for another or wants its name: test_waiting_jobs and storms have them",
    ),
    **dict.fromkeys(
        [
            ("lot", "Reclaim"),
            ("lot", "Yielded"),
            ("slice", "Evict"),
            ("slice", "RoomFound"),
            ("placer", "AskRoom"),
            ("slice", "AskLeavers"),
            ("slice", "ProveGang"),
            ("respool", "LeaversFound"),
            ("respool", "GangRoomFound"),
            ("placer", "AskGangRoom"),
        ],
        "no pool of it lends: test_preemption has two, with a lost shard, and storms have them",
    ),
    ("job", "StartJob"): "there is no service: test_services has one, with a lost shard",
    **dict.fromkeys(
        [("job", name) for name in ("ReplaceJob", "RestartJob", "ControlWorkflow")],
        "there is no service: test_workflows has one, with lost shards",
    ),
    ("task", "Renew"): "of its slice, in its own shard",
    **dict.fromkeys(
        [("task", "GiveWay"), ("slice", "WantDisruption")],
        "of its slice, or of its tasks, in the shard they share",
    ),
    **dict.fromkeys(
        [("job", "SpareAsked"), ("slice", "AskToEnd")],
        "no service has a budget: test_budgets has some, and storms lose its words",
    ),
    ("slice", "RestartIfSpared"): "a client's",
    **dict.fromkeys(
        [
            *(("backend", "ChangesNoted"), ("host", "RunsChanged")),
            *(("host", "ChangeSeen"), ("task", "RunChanged")),
        ],
        "no run has a check: test_health has some, and storms lose its words",
    ),
    **dict.fromkeys(
        [
            *(("backend", "RemoveVolumes"), ("host", "VolumesRemoved")),
            *(("host", "DeleteVolume"), ("slice", "LeaveVolume")),
        ],
        "no job has volumes: test_volumes has some, and storms lose its words",
    ),
    **dict.fromkeys(
        [("inventory", "FollowHosts"), ("inventory", "UnfollowHosts"), ("slice", "HostsTold")],
        "no job follows hosts: test_daemon_jobs has some, and storms lose its words",
    ),
    **dict.fromkeys(
        [("lockdown", "SetLocks"), ("placer", "LaunchesStopped")],
        "an operator's, and what each daemon makes of it for its own placer",
    ),
    **dict.fromkeys(
        [
            (prefix, cls.__name__)
            for prefix, heard in (("engine", MESSAGES), ("link", LINK_MESSAGES))
            for cls in heard.values()
        ],
        "there is no outside engine: test_mesos_fleet has one, with deaths of its owner",
    ),
}
"""Messages that do not travel in this history, and why."""

TABLES = [(kind.name, cls.__name__) for kind in kinds(SIZES).values() for cls in
          kind.messages.values()]  # fmt: skip
TABLES += [
    (prefix, cls.__name__) for prefix, heard in SERVICE_MESSAGES.items() for cls in heard.values()
]
NAMES = [name for name in TABLES if name not in NOT_SENT]
NAMED = pytest.mark.parametrize("name", NAMES, ids=".".join)


def test_the_history_sends_every_message() -> None:
    counter = MessageCounter()
    assert Troubles().play(counter) == []
    sent = {name for name in counter.counts if name[1] != "Seen"}
    assert sent - {*TABLES} == {("job", "GetJob")}, "a message that is in no table"
    silent = "does not travel in this history: have it do so, or say in NOT_SENT why it cannot"
    wrong = [(name, "is in NOT_SENT and no message: remove it") for name in {*NOT_SENT} - {*TABLES}]
    wrong += [(name, "is sent after all: remove it from NOT_SENT") for name in sent & {*NOT_SENT}]
    wrong += [(name, silent) for name in NAMES if name not in sent]
    if wrong:
        lines = sorted(f"{'.'.join(name)} {what}" for name, what in wrong)
        pytest.fail("\n".join(lines), pytrace=False)


@pytest.mark.slow
@NAMED
def test_every_other_message_is_missed(name: tuple[str, str]) -> None:
    _heals(Missed(*name, which=every_other))


def test_a_message_is_missed(storm_seconds: float) -> None:
    chance = random.Random(secrets.randbits(64))
    for _ in in_time(storm_seconds * SHARE_OF_TIME, count()):
        _heals(Missed(*chance.choice(NAMES), which=chance.choice((second, every_other))))


def test_the_sender_stops_at_its_message(storm_seconds: float) -> None:
    chance = random.Random(secrets.randbits(64))
    for _ in in_time(storm_seconds * SHARE_OF_TIME, count()):
        which, behind = chance.choice((first, second)), chance.choice((False, True))
        _heals(Stopped(*chance.choice(NAMES), which=which, behind=behind))


def _heals(missed: Missed) -> None:
    trouble = Troubles()
    wrong = trouble.play(missed)
    if missed.name == ("backend", "ForgetRuns"):
        # No actor's goal: a backend may keep the ends of an idle host until its next check.
        wrong = trouble.reconnect()
    assert not wrong, f"{missed}, {missed.struck} times: " + "; ".join(wrong)
    assert missed.struck or missed.which is second


DELTAS, WISH = ("placer", "HostDeltas"), ("placer", "Wish")
CAPACITY, TALLY = ("respool", "Capacity"), ("job", "SliceTally")


@pytest.mark.parametrize(
    ("names", "behind"),
    [((DELTAS,), 1), ((CAPACITY, TALLY), 3), ((DELTAS, WISH, CAPACITY, TALLY), 10)],
    ids=["placers", "readers", "all"],
)
def test_stale_messages(names: tuple[tuple[str, str], ...], behind: int) -> None:
    nemesis = StaleMessages(*names, behind=behind)
    wrong = Troubles().play(nemesis)
    assert not wrong, "; ".join(wrong)
    assert nemesis.struck


@pytest.mark.parametrize("watch_s_max", [5.0, 20.0])
def test_stale_views_of_members(watch_s_max: float) -> None:
    """Everybody sees who owns what long after it was so, and all between as one."""
    story = ScriptedHistory(seed=9)
    story.cluster.world.ensemble.storm(MembershipFaults(way_s_max=0.5, watch_s_max=watch_s_max))
    story.run()
    _all_is_well(story.cluster)


def _all_is_well(cluster: SimulatedCluster) -> None:
    wrong = [*faults_of(cluster, WANTED_AFTER_CRASH)]
    assert not wrong, "; ".join(wrong)
