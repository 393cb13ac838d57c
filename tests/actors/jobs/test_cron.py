"""Cron expressions: which moments they mean, also where clocks are set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.actors.schedule.cron import Moments, _is_steady, parse_cron
from peloton.runtime.adapters.time_zones import zone_of

BERLIN = "Europe/Berlin"
FORWARD, BACK = "2027-03-28", "2027-10-31"
"""When clocks in Berlin are set: at two o'clock to three, and at three o'clock to two."""

AFTER, SET, UNSET = "2027-03-29", "+02:00", "+01:00"


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone_of(zone)).timestamp()


def upcoming(cron: str, since: str, *, zone: str = "UTC", count: int = 3) -> list[str]:
    moments, found, now = Moments(cron, zone_of(zone)), [], at(since, zone)
    for _ in range(count):
        moment = moments.after(now)
        assert moment is not None
        assert moments.last(moment) == moment and moments.last(moment - 1) != moment
        found.append(datetime.fromtimestamp(moment, zone_of(zone)).isoformat())
        now = moment
    return found


@pytest.mark.parametrize(
    ("cron", "since", "wanted"),
    [
        ("* * * * *", "2027-01-01T00:00:30", ["2027-01-01T00:01", "2027-01-01T00:02"]),
        ("*/15 * * * *", "2027-01-01T00:50", ["2027-01-01T01:00", "2027-01-01T01:15"]),
        ("30 2 * * *", "2027-01-01T02:30", ["2027-01-02T02:30", "2027-01-03T02:30"]),
        ("0 0 1 * *", "2027-01-01T00:00", ["2027-02-01T00:00", "2027-03-01T00:00"]),
        ("0 0 29 2 *", "2027-01-01T00:00", ["2028-02-29T00:00", "2032-02-29T00:00"]),
        ("0 0 29 2 *", "2097-01-01T00:00", ["2104-02-29T00:00", "2108-02-29T00:00"]),
        ("0 9 * * mon-fri", "2027-01-01T09:00", ["2027-01-04T09:00", "2027-01-05T09:00"]),
        ("0 9 * * 7", "2027-01-01T00:00", ["2027-01-03T09:00", "2027-01-10T09:00"]),
        ("0 0 13 * 5", "2027-01-01T00:00", ["2027-01-08T00:00", "2027-01-13T00:00"]),
        ("0 0 */2 * 5", "2027-01-01T00:00", ["2027-01-15T00:00", "2027-01-29T00:00"]),
        ("0 8-18/5,20 * jan *", "2027-01-31T13:00", ["2027-01-31T18:00", "2027-01-31T20:00"]),
        ("@weekly", "2027-01-01T00:00", ["2027-01-03T00:00", "2027-01-10T00:00"]),
        ("@hourly", "2027-12-31T23:00", ["2028-01-01T00:00", "2028-01-01T01:00"]),
    ],
)
def test_moments(cron: str, since: str, wanted: list[str]) -> None:
    assert upcoming(cron, since, count=2) == [f"{one}:00+00:00" for one in wanted]


@pytest.mark.parametrize(
    ("cron", "since", "wanted"),
    [
        ("30 2 * * *", f"{FORWARD}T00:00", [f"{FORWARD}T03:30:00{SET}", f"{AFTER}T02:30:00{SET}"]),
        ("5 * * * *", f"{FORWARD}T01", [f"{FORWARD}T01:05:00{UNSET}", f"{FORWARD}T03:05:00{SET}"]),
        ("30 2 * * *", f"{BACK}T00:00", [f"{BACK}T02:30:00+02:00", "2027-11-01T02:30:00+01:00"]),
        ("30 * * * *", f"{BACK}T02:00", [f"{BACK}T02:30:00+02:00", f"{BACK}T02:30:00+01:00"]),
        ("0 12 * * *", f"{BACK}T13:00", ["2027-11-01T12:00:00+01:00", "2027-11-02T12:00:00+01:00"]),
    ],
)  # fmt: skip
def test_moments_where_clocks_are_set(cron: str, since: str, wanted: list[str]) -> None:
    assert upcoming(cron, since, zone=BERLIN, count=2) == wanted


@pytest.mark.parametrize(
    ("cron", "says"),
    [
        ("", "has not five fields"),
        ("* * * *", "has not five fields"),
        ("@reboot", "has not five fields"),
        ("60 * * * *", "minute: '60' is not from 0 to 59"),
        ("* 24 * * *", "hour: '24' is not from 0 to 23"),
        ("* * 0 * *", "day of the month: '0' is not from 1 to 31"),
        ("* * * 13 *", "month: '13' is not from 1 to 12"),
        ("* * * * 8", "day of the week: '8' is not from 0 to 7"),
        ("* * * * mox", "'mox' is not from 0 to 7"),
        ("5-1 * * * *", "minute: '5-1' goes backwards"),
        ("*/0 * * * *", "the step is 0"),
        ("5/2 * * * *", "a step needs a range"),
        ("-1 * * * *", "is not *, N"),
        ("1, * * * *", "is not *, N"),
        ("? * * * *", "is not *, N"),
        ("*" * 300, "the limit is 200"),
    ],
)
def test_a_bad_expression_is_refused(cron: str, says: str) -> None:
    with pytest.raises(ValueError, match=".") as caught:
        parse_cron(cron)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "zone",
    ["Mars/Olympus", "../etc/passwd", "/etc/localtime", "Europe/", "localtime", "Factory"],
)
def test_a_bad_zone_is_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="is not a time zone"):
        zone_of(zone)


def test_what_never_comes() -> None:
    moments = Moments("0 0 30 2 *", UTC)
    assert moments.after(at("2027-01-01")) is None and moments.last(at("2027-01-01")) is None


MINUTES = st.sampled_from(["*", "0", "*/7", "5,35", "10-20/3"])
HOURS = st.sampled_from(["*", "0", "2", "1-3", "*/5", "23"])
WEEK = st.sampled_from(["*", "0", "1-5", "sun"])
ZONES = st.sampled_from([
    "UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Asia/Kolkata"
])  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(MINUTES, HOURS, WEEK, ZONES, st.integers(1_790_000_000, 1_830_000_000))
def test_moments_are_those_that_a_clock_shows(
    minute: str, hour: str, week: str, zone: str, now: int
) -> None:
    """Minute by minute over two days, on days on which no clock is set: the same moments."""
    moments = Moments(f"{minute} {hour} * * {week}", ZoneInfo(zone))
    cron = parse_cron(f"{minute} {hour} * * {week}")
    first = datetime.fromtimestamp(now, UTC).replace(second=0)
    shown = []
    for number in range(1, 2 * 1440):
        local = (first + timedelta(minutes=number)).astimezone(ZoneInfo(zone))
        if local.minute in cron.minutes and local.hour in cron.hours and cron.has(local.date()):
            shown.append(local.timestamp())
    found, moment = [], moments.after(first.timestamp())
    while moment is not None and moment <= first.timestamp() + (2 * 1440 - 1) * 60:
        assert moments.last(moment + 1.0) == moment
        found.append(moment)
        moment = moments.after(moment)
    assert found == sorted(found) and len({*found}) == len(found)
    offsets = {
        (first + timedelta(hours=n)).astimezone(ZoneInfo(zone)).utcoffset() for n in range(-24, 73)
    }
    if len(offsets) == 1 or hour.startswith("*"):
        assert found == shown


@pytest.mark.parametrize(
    ("day", "zone", "count"),
    [
        (FORWARD, BERLIN, 4 * 60),
        (BACK, BERLIN, 6 * 60),
        ("2027-04-04", "Australia/Lord_Howe", 5 * 60 + 30),
        ("2027-10-03", "Australia/Lord_Howe", 5 * 60 - 30),
        ("2027-04-30", "Africa/Cairo", 4 * 60),  # at midnight
    ],
)
def test_each_minute_of_a_night_in_which_clocks_are_set_comes_once(
    day: str, zone: str, count: int
) -> None:
    """The five hours from midnight on, as a clock shows them."""
    begin = at(f"{day}T00:00", zone)
    moments, found, now = Moments("* * * * *", zone_of(zone)), 0, begin - 1
    while (moment := moments.after(now)) is not None and moment < begin + count * 60:
        assert moment == begin + found * 60
        found, now = found + 1, moment
    assert found == count
    last = datetime.fromtimestamp(now, zone_of(zone)).isoformat()
    assert last.startswith(f"{day}T04:59")


@pytest.mark.parametrize(
    ("day", "zone", "unsteady"),
    [
        (FORWARD, BERLIN, [2]),
        (BACK, BERLIN, [2]),
        (AFTER, BERLIN, []),
        ("2027-04-04", "Australia/Lord_Howe", [1]),
        ("2027-10-03", "Australia/Lord_Howe", [2]),
    ],
)
def test_only_hours_in_which_clocks_are_set_are_computed_by_the_minute(
    day: str, zone: str, unsteady: list[int]
) -> None:
    """A schedule of each minute would take much of its shard's time on such a day otherwise."""
    first = datetime.fromisoformat(day).replace(tzinfo=zone_of(zone))
    found = [hour for hour in range(24) if not _is_steady(first.replace(hour=hour))]
    assert found == unsteady
