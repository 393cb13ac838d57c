"""Specs: how keys may be written, what is refused, and that nothing is dropped in silence.

A spec is read before anyone is called.
"""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.api.v0.job.job_pb2 import JobConfig
from peloton.api.v0.respool.respool_pb2 import ResourcePoolConfig
from peloton.api.v1alpha.job.stateless.stateless_pb2 import JobSpec
from peloton.sdk import render, specs
from peloton.sdk.errors import BadSpec
from peloton.sdk.yaml_text import load_yaml
from peloton.settings.daemon import read_settings

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
POOLS = ("hello_world_pool.yaml",)
CLUSTERS = ("minicluster.yaml",)
DAEMONS = ("daemon.yaml", "mesos.yaml")
SERVICES = ("service.yaml", "service_next.yaml")

GO = """
name: a
type: 1
instancecount: 2
owningteam: t
defaultconfig:
  resource: {cpulimit: 0.1, memlimitmb: 16}
  restartpolicy: {maxfailures: 3}
  command: {shell: true, value: x, environment: {variables: [{name: A, value: 1.10}]}}
instanceconfig:
  0: {healthcheck: {initialintervalsecs: 010}}
"""
CAMEL = """
name: a
type: SERVICE
instanceCount: 2
owningTeam: t
defaultConfig:
  resource: {cpuLimit: 0.1, memLimitMb: 16}
  restartPolicy: {maxFailures: 3}
  command: {shell: yes, value: x, environment: {variables: [{name: A, value: '1.10'}]}}
instanceConfig:
  "0": {healthCheck: {initialIntervalSecs: 8}}
"""
SNAKE = """
name: a
type: service
instance_count: 2
owning_team: t
default_config:
  resource: {cpu_limit: 0.1, mem_limit_mb: 16.0}
  restart_policy: {max_failures: 3}
  command: {shell: on, value: x, environment: {variables: [{name: A, value: 1.10}]}}
instance_config:
  0: {health_check: {initial_interval_secs: 0x8}}
"""


def parse(kind: Any, text: str) -> Any:
    return specs.build(kind, load_yaml(text))


def test_three_ways_to_write_a_job_mean_the_same() -> None:
    go, camel, snake = (parse(JobConfig, text) for text in (GO, CAMEL, SNAKE))
    assert go == camel == snake
    assert go.instanceCount == 2
    assert go.type == 1
    # The text its writer typed, not the number YAML would make of it.
    assert go.defaultConfig.command.environment.variables[0].value == "1.10"
    # A leading zero is octal, as it was for the original's reader of YAML.
    assert go.instanceConfig[0].healthCheck.initialIntervalSecs == 8


def test_the_example_of_a_pool_fits_any_machine() -> None:
    """The first thing that is tried with a file, on a cluster that has just been started."""
    pool = parse(ResourcePoolConfig, (EXAMPLES / "hello_world_pool.yaml").read_text())
    limits = {one.kind: one.limit for one in pool.resources}
    least = {"cpu": 1.0, "memory": 256.0, "disk": 1024.0, "gpu": 0.0}
    assert all(limits[kind] <= least[kind] for kind in limits), limits


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        ("nmae: a", "nmae", "did you mean name?"),
        ("defaultconfig: {comand: {}}", "defaultconfig.comand", "did you mean command?"),
        ("instanceconfig: {3: {x: 1}}", "instanceconfig.3.x", "no such key"),
        ("labels: [{key: a}, {kee: b}]", "labels[1].kee", "did you mean key?"),
        ("unknown:", "unknown", "no such key"),
        ("instancecount: many", "instancecount", "expected a whole number, found 'many'"),
        ("instancecount: 1.5", "instancecount", "expected a whole number"),
        ("instancecount: -1", "instancecount", "-1 is not between 0 and 4294967295"),
        (
            "instancecount: 5000000000",
            "instancecount",
            "5000000000 is not between 0 and 4294967295",
        ),
        ("instancecount: [1]", "instancecount", "found a list"),
        ("instanceconfig: {-1: {}}", "instanceconfig.-1", "-1 is not between 0 and 4294967295"),
        ("instanceconfig: {a: {}}", "instanceconfig.a", "whole number"),
        ("instanceconfig: {1: }", "instanceconfig.1", "expected a value"),
        ("type: CRON", "type", "one of BATCH (0), SERVICE (1), DAEMON (2)"),
        ("type: 7", "type", "one of BATCH (0)"),
        ("placementStrategy: x", "placementStrategy", "one of PLACEMENT_STRATEGY_PACK"),
        ("sla: {preemptible: maybe}", "sla.preemptible", "true or false"),
        ("sla: 3", "sla", "expected keys and values, found '3'"),
        ("labels: {a: b}", "labels", "expected a list"),
        ("name: {a: b}", "name", "expected a text"),
        ("name: a\nname: b", "name", "given twice, the second time in line 2"),
        ("instancecount: 1\ninstanceCount: 2", "instanceCount", "once as instancecount"),
        (
            "defaultconfig: {command: {environment: {variables: [{value: x}]}}}",
            "defaultConfig.command.environment.variables[0].name",
            "must be given",
        ),
        ("- a", "", "expected keys and values, found a list"),
        ("", "", "found nothing"),
        ("a: [", "", "line"),
        ("a: \x01", "", "not YAML"),
    ],
)
def test_a_mistake_is_named_by_its_path(text: str, field: str, words: str) -> None:
    with pytest.raises(BadSpec) as caught:
        parse(JobConfig, text)
    assert caught.value.field == field
    assert words in str(caught.value)
    assert str(caught.value).startswith(field)


def test_anchors_and_merges_work() -> None:
    text = """
    defaultconfig: &base {name: a, resource: {cpulimit: 1}}
    instanceconfig:
      1: {<<: *base, name: b}
    """
    one = parse(JobConfig, text).instanceConfig[1]
    assert (one.name, one.resource.cpuLimit) == ("b", 1.0)


def test_null_leaves_a_field_alone_and_a_quoted_null_is_a_text() -> None:
    config = parse(JobConfig, 'name: ~\ndescription: "null"\nsla:\n')
    assert (config.name, config.description, config.HasField("sla")) == ("", "null", False)


def test_plain_python_is_a_spec_and_a_text_is_not_made_of_a_number() -> None:
    assert specs.build(JobConfig, {"instance_count": 3, "name": "a"}).instanceCount == 3
    with pytest.raises(BadSpec, match="labels\\[0\\].value: expected a text, found 3"):
        specs.build(JobConfig, {"labels": [{"key": "a", "value": 3}]})


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_parse(path: Path) -> None:
    if path.name in CLUSTERS:
        assert yaml.safe_load(path.read_text())["hosts"]
    elif path.name in DAEMONS:
        assert read_settings(path, None).cluster
    else:
        kind: Any = ResourcePoolConfig if path.name in POOLS else JobConfig
        kind = JobSpec if path.name in SERVICES else kind
        assert parse(kind, path.read_text()).name


def every_message(descriptor: Any, seen: dict[str, Any]) -> dict[str, Any]:
    if descriptor.full_name not in seen:
        seen[descriptor.full_name] = descriptor
        for field in descriptor.fields:
            if field.message_type:
                every_message(field.message_type, seen)
    return seen


MESSAGES = every_message(JobConfig.DESCRIPTOR, {})


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_no_two_fields_answer_to_one_key(name: str) -> None:
    fields = [specs.plain(field.name) for field in MESSAGES[name].fields]
    assert len(fields) == len(set(fields))


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)


def scalars(field: Any) -> st.SearchStrategy[Any]:
    limits = {
        FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
        FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
        FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
        FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    }
    if field.cpp_type in limits:
        return st.integers(*limits[field.cpp_type])
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return st.sampled_from([value.name for value in field.enum_type.values])
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
        return st.floats(allow_nan=False, allow_infinity=False)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=4).map(lambda data: base64.b64encode(data).decode())
    return TEXT


@st.composite
def data_of(draw: Any, descriptor: Any, depth: int) -> dict[str, Any]:
    """Plain data for a message: some of its fields, the required ones always."""
    names = [one.name for one in descriptor.fields if depth or not one.message_type]
    chosen = draw(st.sets(st.sampled_from(names), max_size=4)) if names else set()
    chosen |= {one.name for one in descriptor.fields if one.is_required}
    by_name = descriptor.fields_by_name
    return {name: draw(value_of(by_name[name], depth)) for name in sorted(chosen)}


def value_of(field: Any, depth: int) -> st.SearchStrategy[Any]:
    if specs.is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return st.dictionaries(scalars(key), value_of(value, depth - 1), max_size=2)
    if field.message_type:
        one: st.SearchStrategy[Any] = data_of(field.message_type, max(depth - 1, 0))
    else:
        one = scalars(field)
    return st.lists(one, max_size=2) if field.is_repeated else one


def respelled(data: Any, chance: random.Random) -> Any:
    """The same with other cases and underscores in its keys. Keys of maps are no field names."""
    if isinstance(data, list):
        return [respelled(item, chance) for item in data]
    if not isinstance(data, dict):
        return data
    return {spell(key, chance): respelled(value, chance) for key, value in data.items()}


def spell(key: Any, chance: random.Random) -> Any:
    if not isinstance(key, str):
        return key
    letters = [letter.upper() if chance.random() < 0.3 else letter.lower() for letter in key]
    return "".join("_" * (chance.random() < 0.2) + letter for letter in letters)


@settings(max_examples=60, deadline=None)
@given(data=data_of(JobConfig.DESCRIPTOR, 3), chance=st.randoms(use_true_random=False))
def test_spelling_and_yaml_change_nothing(data: dict[str, Any], chance: random.Random) -> None:
    message = specs.build(JobConfig, data)
    assert specs.build(JobConfig, respelled(data, chance)) == message
    assert parse(JobConfig, yaml.safe_dump(data)) == message
    assert specs.build(JobConfig, render.to_dict(message)) == message


@settings(max_examples=60, deadline=None)
@given(data=data_of(JobConfig.DESCRIPTOR, 2), key=st.text("abcxyz_", min_size=1, max_size=9))
def test_a_key_nobody_knows_is_always_an_error(data: dict[str, Any], key: str) -> None:
    known = {specs.plain(field.name) for field in JobConfig.DESCRIPTOR.fields}
    if specs.plain(key) not in known:
        with pytest.raises(BadSpec) as caught:
            specs.build(JobConfig, data | {key: None})
        assert caught.value.field == key


def test_all_mistakes_of_a_spec_are_named_up_to_a_bound() -> None:
    spec = {
        "nam": "x",
        "instancecount": "many",
        "defaultconfig": {"resource": {"cpulimt": 1, "memlimitmb": "much"}},
    }
    with pytest.raises(BadSpec) as found:
        specs.build(JobConfig, spec)
    assert [found.value.field, *(each.field for each in found.value.more)] == [
        "nam", "instancecount", "defaultconfig.resource.cpulimt",
        "defaultconfig.resource.memlimitmb",
    ]  # fmt: skip
    with pytest.raises(BadSpec) as found:
        specs.build(JobConfig, {f"no{number}": 1 for number in range(1000)})
    assert len(found.value.more) == 19


@pytest.mark.parametrize("name", ["SPREAD_JOB", "spread_job", "PLACEMENT_STRATEGY_SPREAD_JOB", "2"])
def test_what_all_names_of_an_enum_begin_with_may_be_left_out(name: str) -> None:
    found = parse(JobConfig, f"placementStrategy: {name}")
    assert found.placementStrategy == 2
    kind = "defaultConfig: {constraint: {type: %s}}"
    assert parse(JobConfig, kind % "LABEL_CONSTRAINT").defaultConfig.constraint.type == 1
    with pytest.raises(BadSpec):
        parse(JobConfig, "placementStrategy: JOB")
