"""Files that a task wants fetched: in both forms of a spec, and where a cluster fetches them."""

from __future__ import annotations

from pathlib import Path

import pytest

from peloton.actors.host.run_spec import Uri
from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.gateway.grpc_server import STANDARD_OPTIONS
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.pod_specs import pod_spec_of, to_task
from peloton.gateway.translate.translate_task import to_config
from peloton.gateway.translate.uris import URIS_MAX, uris_of
from tests.gateway.fleet_fixture import default_config, named, running

EVERY = {
    "value": "http://x/a.tgz", "executable": True, "extract": False, "cache": True,
    "output_file": "in/a",
}  # fmt: skip


def test_records_have_every_field_and_the_contracts_defaults() -> None:
    sent = mesos.CommandInfo(uris=[{"value": "hdfs:///a"}, EVERY])
    whole = Uri("http://x/a.tgz", True, False, True, "in/a")
    assert uris_of(sent) == (Uri("hdfs:///a", False, True, False, ""), whole)
    config = task.TaskConfig(command={"value": "true", "uris": [EVERY]})
    found = to_config(config, "config").command
    assert found is not None and found.uris == (whole,)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"value": ""}, "uris[0].value"),
        ({"value": "a\nb"}, "uris[0].value"),
        ({"value": "x" * 5000}, "uris[0].value"),
        *(({"value": "x", "output_file": name}, "uris[0].output_file")
          for name in ("/a", "a/", "..", "a/../b", "./a", "a//b", "a\0b", "a" * 5000)),
    ],
)  # fmt: skip
def test_what_is_no_file_to_fetch(given: dict[str, str], field: str) -> None:
    with pytest.raises(BadField) as why:
        uris_of(mesos.CommandInfo(uris=[given]))
    assert why.value.field == field


def test_so_many_files_at_most() -> None:
    with pytest.raises(BadField, match="101 files, the limit is 100"):
        uris_of(mesos.CommandInfo(uris=[{"value": "x"}] * (URIS_MAX + 1)))


def test_a_pod_says_them_beside_its_container_and_reads_them_back() -> None:
    container = {"name": "a", "entrypoint": {"value": "true"}}
    sent = pod.PodSpec(containers=[container], mesos_spec={"uris": [EVERY], "shell": True})
    config = to_task(sent, "spec")
    assert [one.output_file for one in config.command.uris] == ["in/a"]
    assert not config.command.uris[0].extract and config.command.uris[0].HasField("extract")
    assert pod_spec_of(config).mesos_spec.uris == sent.mesos_spec.uris


def test_a_cluster_outside_takes_them(tmp_path: Path) -> None:
    config = default_config()
    config.command.uris.add(value="http://x")
    fetching = STANDARD_OPTIONS._replace(outside=True)
    with running(tmp_path, options=fetching) as deployment:
        made = deployment.create(deployment.request(1, defaultConfig=config))
        assert deployment.task(made).result.config.command.uris == config.command.uris
        deployment.ended(made)
        # Nor does it say of an image that it is ignored.
        config.container.type = mesos.ContainerInfo.DOCKER
        config.container.docker.image = "debian"
        made = deployment.create(deployment.request(1, defaultConfig=config))
        deployment.ended(made)
        asked = task.GetPodEventsRequest(jobId=named(made), instanceId=0)
        events = deployment.tasks.GetPodEvents(asked).result
        assert events and not any("ignored" in event.message for event in events)
