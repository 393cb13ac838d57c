"""Compares the compiled descriptors with wire.tsv, the contract with existing clients, row by row.

What counts is what the installed modules put on the wire.
"""

from __future__ import annotations

import csv
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

TABLE, OWN_TABLE = Path(__file__).parent / "wire.tsv", Path(__file__).parent / "own.tsv"
OWN_FIELD_MIN = 1001
"""Our own fields in messages of the contract begin here, far from what the original had: its
clients skip them."""
COLUMNS = (
    "kind full_name number type label oneof map input output "
    "client_streaming server_streaming proto_file syntax default"
).split()
# Folders that moved so that Python finds them below its own package. Package names, which are
# what travels, did not.
MOVED = {"mesos/": "peloton/api/mesos/", "qos/": "peloton/private/qos/"}
TYPES = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in Field.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP")
}
LABELS = {number: name.removeprefix("LABEL_").lower() for name, number in Field.Label.items()}

Row = tuple[str, ...]


def here(wire_path: str) -> str:
    for old, new in MOVED.items():
        if wire_path.startswith(old):
            return new + wire_path.removeprefix(old)
    return wire_path


def rows_of(table: Path) -> dict[str, list[Row]]:
    """The table's rows by file, with today's paths."""
    files: dict[str, list[Row]] = {}
    with table.open(newline="") as lines:
        for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
            row["proto_file"] = here(row["proto_file"])
            if row["kind"] == "import":
                row["type"] = here(row["type"])
            files.setdefault(row["proto_file"], []).append(tuple(row[c] for c in COLUMNS))
    return files


CONTRACT, OWN = rows_of(TABLE), rows_of(OWN_TABLE)


def compiled(path: str) -> descriptor_pb2.FileDescriptorProto:
    importlib.import_module(path.removesuffix(".proto").replace("/", ".") + "_pb2")
    found = descriptor_pb2.FileDescriptorProto()
    descriptor_pool.Default().FindFileByName(path).CopyToProto(found)
    return found


class Reader:
    """Turns one compiled file into the rows the table would have for it."""

    def __init__(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        self.file = file
        self.syntax = file.syntax or "proto2"

    def row(self, kind: str, full_name: str, **columns: str) -> Row:
        columns |= {
            "kind": kind,
            "full_name": full_name,
            "proto_file": self.file.name,
            "syntax": self.syntax,
        }
        return tuple(columns.get(name, "") for name in COLUMNS)

    def rows(self) -> Iterator[Row]:
        package = self.file.package
        yield self.row("file", package)
        for path in self.file.dependency:
            yield self.row("import", package, type=path)
        for enum in self.file.enum_type:
            yield from self.enum(package, enum)
        for message in self.file.message_type:
            yield from self.message(package, message)
        for service in self.file.service:
            yield self.row("service", f"{package}.{service.name}")
            for method in service.method:
                yield self.row(
                    "method",
                    f"{package}.{service.name}.{method.name}",
                    input=method.input_type.lstrip("."),
                    output=method.output_type.lstrip("."),
                    client_streaming=str(method.client_streaming).lower(),
                    server_streaming=str(method.server_streaming).lower(),
                )

    def enum(self, scope: str, enum: descriptor_pb2.EnumDescriptorProto) -> Iterator[Row]:
        name = f"{scope}.{enum.name}"
        yield self.row("enum", name)
        for value in enum.value:
            yield self.row("value", f"{name}.{value.name}", number=str(value.number))

    def message(self, scope: str, message: descriptor_pb2.DescriptorProto) -> Iterator[Row]:
        name = f"{scope}.{message.name}"
        yield self.row("message", name)
        entries = {
            f".{name}.{nested.name}": nested
            for nested in message.nested_type
            if nested.options.map_entry
        }
        for field in message.field:
            entry = entries.get(field.type_name)
            pair = ",".join(self.type(f) for f in entry.field) if entry else ""
            oneof = (
                message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
            )
            yield self.row(
                "field",
                f"{name}.{field.name}",
                number=str(field.number),
                type=self.type(field),
                label=LABELS[field.label],
                oneof=oneof,
                map=pair,
                default=field.default_value,
            )
        for enum in message.enum_type:
            yield from self.enum(name, enum)
        for nested in message.nested_type:
            if not nested.options.map_entry:
                yield from self.message(name, nested)

    @staticmethod
    def type(field: Field) -> str:
        return TYPES.get(field.type) or field.type_name.lstrip(".")


def differences(wanted: list[Row], found: list[Row]) -> list[str]:
    missing = [f"missing: {row}" for row in sorted(set(wanted) - set(found))]
    foreign = [f"not in the contract: {row}" for row in sorted(set(found) - set(wanted))]
    return missing + foreign


@pytest.mark.parametrize("path", CONTRACT)
def test_every_row_of_the_contract_is_compiled_and_nothing_else(path: str) -> None:
    wanted = [*CONTRACT[path], *OWN.get(path, ())]
    assert differences(wanted, list(Reader(compiled(path)).rows())) == []


def test_own_fields_have_numbers_of_their_own() -> None:
    known = {row[1] for rows in CONTRACT.values() for row in rows if row[0] == "message"}
    ours = {row[1] for rows in OWN.values() for row in rows if row[0] == "message"}
    assert not ours & known
    for path, rows in OWN.items():
        assert path in CONTRACT
        for row in rows:
            if row[0] == "message" or row[1].rpartition(".")[0] in ours:
                continue
            assert row[0] == "field" and row[1].rpartition(".")[0] in known
            assert int(row[2]) >= OWN_FIELD_MIN
    numbers = [int(r[2]) for rows in CONTRACT.values() for r in rows if r[0] == "field"]
    assert max(numbers) < OWN_FIELD_MIN


@pytest.mark.parametrize("path", CONTRACT)
def test_enum_values_keep_their_order(path: str) -> None:
    """The first value of a proto2 enum is its default, so order is part of the contract."""

    def by_enum(rows: list[Row]) -> dict[str, list[str]]:
        enums: dict[str, list[str]] = {}
        for row in rows:
            if row[0] == "value":
                enums.setdefault(row[1].rpartition(".")[0], []).append(row[1])
        return enums

    assert by_enum(list(Reader(compiled(path)).rows())) == by_enum(CONTRACT[path])


def test_the_table_is_whole() -> None:
    """Guards the guard: a table cut short would make every comparison above easier."""
    counts: dict[str, int] = {}
    for rows in CONTRACT.values():
        for row in rows:
            counts[row[0]] = counts.get(row[0], 0) + 1
    assert counts == {
        "file": 48,
        "import": 99,
        "message": 888,
        "field": 2377,
        "enum": 84,
        "value": 546,
        "service": 23,
        "method": 183,
    }


def test_a_changed_number_and_a_stray_field_are_noticed() -> None:
    path = "peloton/api/v0/job/job.proto"
    file = compiled(path)
    file.message_type[0].field[0].number += 100
    file.message_type[0].field.add(name="stray", number=99, label=1, type=9)
    assert len(differences([*CONTRACT[path], *OWN[path]], list(Reader(file).rows()))) == 3


@pytest.mark.parametrize("path", [p for p in CONTRACT if p.startswith("peloton/")])
def test_every_service_has_a_servicer_and_a_stub(path: str) -> None:
    stubs = importlib.import_module(path.removesuffix(".proto").replace("/", ".") + "_pb2_grpc")
    for service in compiled(path).service:
        for name in (f"{service.name}Servicer", f"{service.name}Stub"):
            assert hasattr(stubs, name), name
        servicer = getattr(stubs, f"{service.name}Servicer")
        assert all(hasattr(servicer, method.name) for method in service.method)


def test_our_own_calls_stay_out_of_the_old_packages() -> None:
    """An old client must never meet a call of ours under a name it knows."""
    for module, package in (("ops.v1.ops", "ops.v1"), ("exchange.v1.exchange", "exchange.v1")):
        made = importlib.import_module(f"peloton.{module}_pb2")
        assert made.DESCRIPTOR.package == f"peloton.{package}"
