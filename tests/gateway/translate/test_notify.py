"""The label by which a job has its end told, and which URLs an operator allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from peloton.actors.job.spec import Notify
from peloton.api.v0 import peloton_pb2
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.job_labels import fields_of
from peloton.settings.config import BadSetting
from peloton.settings.daemon import ROLES, parse
from peloton.settings.notify import LOOPBACK, AllowedUrls, NotifySetting, notify_problems, url_parts
from tests.adapters.hooks import Hooks
from tests.gateway.fleet_fixture import Deployment, default_config

HOOK = "https://example.com/hooks/1"


def fields(value: str) -> object:
    return fields_of([peloton_pb2.Label(key="peloton.notify", value=value)], name="n")["notify"]


def test_a_label_names_a_url_and_ends() -> None:
    assert fields(HOOK) == Notify(HOOK)
    assert fields(f"{HOOK} failed,KILLED") == Notify(HOOK, ("FAILED", "KILLED"))
    assert fields(f"{HOOK} FAILED, KILLED,FAILED") == Notify(HOOK, ("FAILED", "KILLED"))
    assert fields(f"{HOOK} FAILED,ENDED") == Notify(HOOK)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "is not a URL of http or https"),
        ("file:///etc/passwd", "is not a URL of http or https"),
        ("https:///x", "names no host"),
        ("https://a b/", "'B/' is not one of SUCCEEDED"),
        ("https://u:p@example.com/", "user name"),
        ("https://example.com\\@evil/", "characters"),
        ("https://example.com/\r\nX: y", "characters"),
        ("https://exämple.com/", "characters"),
        ("https://example.com:0/", "port 0"),
        ("https://example.com:x/", "is not a URL"),
        ("https://[::1/", "is not a URL"),
        ("https://example.com/#x", "what follows a #"),
        ("https://example.com/hooks/../admin", "go back by dots"),
        ("https://example.com/hooks/%2E%2e/admin", "go back by dots"),
        ("https://example.com/hooks/..;/admin", "go back by dots"),
        ("https://example.com/hooks/%2e.%3Bx=1/admin", "go back by dots"),
        ("https://example.com/hooks%2f..", "read in two ways"),
        ("https://example.com/" + "x" * 2000, "the limit is 2000"),
        (f"{HOOK} DONE", "'DONE' is not one of SUCCEEDED"),
    ],
)
def test_a_bad_label_is_refused(value: str, says: str) -> None:
    with pytest.raises(BadField) as caught:
        fields(value)
    assert str(caught.value).startswith("config.labels[0]: peloton.notify: ")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("prefix", "url", "allowed"),
    [
        ("https://example.com", "https://example.com/a?b=c", True),
        ("https://example.com/", "https://EXAMPLE.com:443/a", True),
        ("https://example.com/a", "https://example.com/a", True),
        ("https://example.com/a", "https://example.com/a/b", True),
        ("https://example.com/a/", "https://example.com/a/b", True),
        ("https://example.com/a", "https://example.com/ab", False),
        ("https://example.com/a", "https://example.com/A", False),
        ("https://example.com", "http://example.com/", False),
        ("https://example.com", "https://example.com:444/", False),
        ("https://example.com", "https://example.com.evil.net/", False),
        ("https://example.com", "https://evil.net/example.com", False),
        (LOOPBACK, "http://localhost:1234/x", True),
        (LOOPBACK, "http://127.9.9.9/x", True),
        (LOOPBACK, "https://[::1]:8443/x", True),
        (LOOPBACK, "http://127.0.0.1.evil.net/x", False),
        (LOOPBACK, "http://2130706433/x", False),
        (LOOPBACK, "http://169.254.169.254/latest", False),
        ("http://127.0.0.1:80", "http://127.0.0.1:81/", False),
    ],
)
def test_prefixes_allow_what_is_below_them(prefix: str, url: str, allowed: bool) -> None:
    assert (not AllowedUrls([prefix]).why_not(url)) is allowed


def test_without_prefixes_nothing_is_allowed() -> None:
    assert "allows no URL" in AllowedUrls([]).why_not(HOOK)


def test_a_request_names_its_host_as_it_has_to() -> None:
    assert url_parts("http://[::1]:81/x?y").authority == "[::1]:81"
    assert url_parts("https://a.b:443").authority == "a.b"
    assert url_parts("https://a.b?q=1").target == "/?q=1"


def test_prefixes_of_an_operator_are_checked() -> None:
    setting = NotifySetting(allow=["https://a.b/c", LOOPBACK, "ftp://a", "http://a?b"])
    found = [*notify_problems(setting)]
    assert [text.partition(":")[0] for text in found] == ["notify.allow[2]", "notify.allow[3]"]


def test_a_daemon_allows_what_its_file_says() -> None:
    raw = {"cluster": "c", "journal": {"sqlite": {"folder": "j"}}, "roles": [*ROLES]}
    raw |= {"backend": {"simulated": {"hosts": [{"name": "h"}]}}}
    assert parse(raw, Path("/x")).notify.allow == []
    with pytest.raises(BadSetting, match=r"notify.allow\[0\]: 'x' is not a URL"):
        parse(raw | {"notify": {"allow": ["x"]}}, Path("/x"))


# ---- through the gateway; its operator allows what the hooks listen at ----


def refused(deployment: Deployment, value: str) -> str:
    label = peloton_pb2.Label(key="peloton.notify", value=value)
    sent = deployment.request(1, defaultConfig=default_config(), labels=[label])
    return str(deployment.jobs.Create(sent).error.invalidConfig.message)


def test_what_the_operator_does_not_allow_is_refused(deployment: Deployment) -> None:
    said = refused(deployment, HOOK)
    assert said.startswith(f"config.labels: peloton.notify: {HOOK} is not below a prefix")
    assert "peloton.notify: 'ftp://x/'" in refused(deployment, "ftp://x/")


def test_an_end_is_told(deployment: Deployment) -> None:
    with Hooks() as hooks:
        label = peloton_pb2.Label(key="peloton.notify", value=f"{hooks.url}/done")
        sent = deployment.request(2, defaultConfig=default_config(), labels=[label], name="told")
        made = deployment.create(sent)
        path, body = hooks.next()
    assert path == "/done"
    assert (body["job_id"], body["end"], body["name"]) == (made, 1, "told")
    assert (body["state"], body["instances"], body["counts"]) == ("SUCCEEDED", 2, {"SUCCEEDED": 2})
    assert body["created_at"] <= body["started_at"] <= body["completed_at"]
    assert body["pool"] and body["cluster"]


def test_only_the_ends_that_were_asked_for_are_told(deployment: Deployment) -> None:
    with Hooks() as hooks:
        for state in ("FAILED", "SUCCEEDED"):
            label = peloton_pb2.Label(key="peloton.notify", value=f"{hooks.url}/{state} {state}")
            sent = deployment.request(1, defaultConfig=default_config(), labels=[label])
            deployment.ended(deployment.create(sent))
        assert hooks.next()[0] == "/SUCCEEDED"
        assert hooks.empty()
