"""What is wrong with a declaration of a kind: each mistake alone, its text and its line."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.links.packing import Packing
from peloton.sdk.kit import BadKind, build
from peloton.sdk.kit.checking import problems

GOOD = """\
import enum
from collections.abc import Mapping
from typing import Any

import msgspec

from peloton.sdk.kit import *
from peloton.sdk.kit import ActorFact as Fact, ActorMessage as Message


class Phase(enum.Enum):
    OPEN = "open"
    SHUT = "shut"


class Part(msgspec.Struct, frozen=True):
    size: int = 0


class Door(ActorState, frozen=True):
    parts: tuple[Part, ...] = ()
    names: Mapping[str, Part] = {}
    phase: Phase = Phase.OPEN


class Shut(Message, frozen=True):
    hard: bool


class Fell(Fact, frozen=True):
    pass


class Look(ActorQuery, frozen=True):
    pass


class Seen(ActorReply, frozen=True):
    pass


DOOR = ActorKind("door", state=Door)


@DOOR.decides(Shut, reply=Seen)
def shut(door, message, at):
    return _fell()


def _fell():
    return Decision((Fell(),), reply=Seen())


@DOOR.folds(Fell)
def fell(door, fact):
    return door


@DOOR.answers(Look, reply=Seen)
def look(door, query, at):
    return Seen()


@DOOR.deadline
def closes(door):
    return ("closing", 9.0)


@DOOR.due("closing")
def close(door, at):
    return _fell()


@DOOR.owes
def owes(door):
    return ()


@DOOR.ends
def ends(door):
    return False


def phase(door):
    return door.phase


def step(door, at):
    return None


DOOR.pursues(phase, {Phase.OPEN: (step,), Phase.SHUT: ()})
"""
HERE = "  # <-"
STATE = "class Door(ActorState, frozen=True):"
KIND = 'DOOR = ActorKind("door", state=Door)'
DECIDES = "@DOOR.decides(Shut, reply=Seen)"
PARTS = "    parts: tuple[Part, ...] = ()"
TABLE = "DOOR.pursues(phase, {Phase.OPEN: (step,), Phase.SHUT: ()})"
PHASE = "def phase(door):"

BAD: list[tuple[str, dict[str, str], str]] = [
    ("a name in capitals", {KIND: 'DOOR = ActorKind("Door", state=Door)' + HERE},
     "the name is not 1 to 31 of a-z, 0-9 and _, a letter first"),
    ("a name that is too long", {KIND: f'DOOR = ActorKind("{"d" * 32}", state=Door)' + HERE},
     "the name is not 1 to 31 of a-z, 0-9 and _, a letter first"),
    ("a name of nothing", {KIND: "DOOR = ActorKind(None, state=Door)" + HERE},
     "the name is not 1 to 31 of a-z, 0-9 and _, a letter first"),
    ("no shards", {KIND: 'DOOR = ActorKind("door", state=Door, shards=0)' + HERE},
     "shards: 0 is no whole number between 1 and 4096"),
    ("too many shards", {KIND: 'DOOR = ActorKind("door", state=Door, shards=4097)' + HERE},
     "shards: 4097 is no whole number between 1 and 4096"),
    ("shards as a text", {KIND: 'DOOR = ActorKind("door", state=Door, shards="4")' + HERE},
     "shards: '4' is no whole number between 1 and 4096"),
    ("a limit below zero",
     {KIND: 'DOOR = ActorKind("door", state=Door, limits=TurnLimits(sends=-1))' + HERE},
     "limits.sends: -1 is no number between 0 and 10000"),
    ("a limit of infinity",
     {KIND: 'DOOR = ActorKind("door", state=Door, limits=TurnLimits(turn_s=float("inf")))' + HERE},
     "limits.turn_s: inf is no number between 0 and 10.0"),
    ("a limit that no frame keeps",
     {KIND: 'DOOR = ActorKind("door", state=Door, limits=TurnLimits(1 << 23))' + HERE},
     "limits.state_bytes: 8388608 is no number between 0 and 4194304"),
    ("one text of targets", {KIND: 'DOOR = ActorKind("door", state=Door, sends_to="bell")' + HERE},
     "sends_to: 'bell' is a text, not a tuple of names"),

    ("a field that a new actor has not", {STATE: STATE + HERE, PARTS: "    parts: int"},
     "field parts of Door has no default: a new actor has none"),
    ("a state that is not frozen", {STATE: "class Door(ActorState, frozen=False):" + HERE},
     "the state Door is not frozen"),
    ("a state of another class", {STATE: "class Door(msgspec.Struct, frozen=True):" + HERE},
     "the state Door is not a class below kit.ActorState"),
    ("a state that is a value", {KIND: 'DOOR = ActorKind("door", state=9)' + HERE},
     "the state 9 is not a class below kit.ActorState"),
    ("fields stored by place", {STATE: "class Door(ActorState, frozen=True, array_like=True):"
     + HERE}, "the state Door is array_like: fields are stored by name"),
    ("fields of later versions refused", {"class Fell(Fact, frozen=True):":
     "class Fell(Fact, frozen=True, forbid_unknown_fields=True):" + HERE},
     "the fact Fell forbids unknown fields, which a later version may write"),
    ("a type that is not there", {STATE: STATE + HERE, PARTS: '    parts: "Prats" = ()'},
     "the state Door cannot be encoded: name 'Prats' is not defined"),
    ("two structs that are alike",
     {STATE: STATE + HERE, PARTS: "    parts: Part | Shut | None = None",
      "class Part(": "class Shut(Message, frozen=True):\n    hard: bool\n\n\nclass Part(",
      "\n\nclass Shut(Message, frozen=True):\n    hard: bool\n\n\nclass Fell": "\n\nclass Fell"},
     "the state Door cannot be encoded: If a type union contains multiple Struct types, all "
     "Struct types must be tagged (via `tag` or `tag_field` kwarg) - type `MODULE.Part | "
     "MODULE.Shut | None` is not supported"),
    ("a field of no type of data", {STATE: STATE + HERE, PARTS: "    parts: ActorKind = None"},
     "field parts of Door: a ActorKind cannot be stored"),
    ("a list", {STATE: STATE + HERE, PARTS: "    parts: list[Part] = []"},
     "field parts of Door: a list can be changed in place: use tuple[X, ...]"),
    ("a dict inside of a tuple", {STATE: STATE + HERE,
     PARTS: "    parts: tuple[dict[str, int], ...] = ()"},
     "field parts of Door: a dict can be changed in place: use Mapping"),
    ("a set of a message", {"class Shut(Message, frozen=True):":
     "class Shut(Message, frozen=True):" + HERE, "    hard: bool": "    hard: set[int]"},
     "field hard of Shut: a set can be changed in place: use frozenset"),
    ("a part that is not frozen", {STATE: STATE + HERE, "class Part(msgspec.Struct, frozen=True):":
     "class Part(msgspec.Struct):",
     "names: Mapping[str, Part]": "names: Mapping[str, int]"},
     "field parts of Door: Part is not frozen"),
    ("a default that varies", {STATE: STATE + HERE,
     PARTS: "    parts: float = msgspec.field(default_factory=__import__('time').time)"},
     "field parts of Door: its default is made by a function, so what is stored without it "
     "would vary"),

    ("a message of another class", {"class Shut(Message, frozen=True):":
     "class Shut(msgspec.Struct, frozen=True):" + HERE},
     "the message Shut is not a class below kit.ActorMessage"),
    ("a message that is not frozen", {"class Shut(Message, frozen=True):":
     "class Shut(Message, frozen=False):" + HERE}, "the message Shut is not frozen"),
    ("a message that is a text", {DECIDES: '@DOOR.decides("Shut", reply=Seen)'},
     "the message Shut is not a class below kit.ActorMessage"),
    ("a message as a query", {"@DOOR.answers(Look, reply=Seen)": "@DOOR.answers(Shut, reply=Seen)",
     "class Shut(Message, frozen=True):": "class Shut(Message, frozen=True):" + HERE},
     "the query Shut is not a class below kit.ActorQuery"),
    ("a query as a message", {DECIDES: DECIDES + "\n@DOOR.decides(Look)",
     "class Look(ActorQuery, frozen=True):": "class Look(ActorQuery, frozen=True):" + HERE},
     "the message Look is not a class below kit.ActorMessage"),
    ("a reply of another class", {"class Seen(ActorReply, frozen=True):":
     "class Seen(msgspec.Struct, frozen=True):" + HERE},
     "the reply Seen is not a class below kit.ActorReply"),
    ("no message", {DECIDES: "", KIND: KIND + HERE, "@DOOR.answers(Look, reply=Seen)":
     "@DOOR.answers(Look, reply=Seen)"}, "it decides no message"),
    ("a decorator without its class", {"@DOOR.folds(Fell)\ndef fell(": "@DOOR.folds" + HERE
     + "\ndef other(", TABLE: "DOOR.folds(Fell)(lambda door, fact: door)\n" + TABLE},
     "the fact other is not a class below kit.ActorFact"),
    ("a message without a function", {"class Shut(Message": "class Open(Message, frozen=True):"
     + HERE + "\n    pass\n\n\nclass Shut(Message", DECIDES: "DOOR.decides(Open)\n" + DECIDES},
     "the function of message Open is not declared"),
    ("a due that has no name", {'@DOOR.due("closing")': "@DOOR.due" + HERE,
     TABLE: '@DOOR.due("closing")\ndef more(door, at):\n    return _fell()\n' + TABLE},
     "due 'close': give a name, the part before the colon"),

    ("two functions of one message", {DECIDES: DECIDES, "def _fell():":
     DECIDES + HERE + "\ndef again(door, message, at):\n    return _fell()\n\n\ndef _fell():"},
     "Shut is declared twice"),
    ("two deadlines", {"@DOOR.due(": "@DOOR.deadline" + HERE
     + "\ndef opens(door):\n    return None\n\n\n@DOOR.due("}, "deadline is declared twice"),
    ("two goal tables", {TABLE: TABLE + "\n" + TABLE, PHASE: PHASE + HERE},
     "pursues is declared twice"),
    ("the kit's own query", {"@DOOR.answers(Look, reply=Seen)":
     "@DOOR.answers(GetState, reply=Seen)" + HERE, "class Look(ActorQuery, frozen=True):\n    pass":
     ""}, "GetState is declared twice"),

    ("two arguments too few", {"def shut(door, message, at):": "def shut(door):",
     DECIDES: DECIDES + HERE}, "the function of message Shut is called with 3 arguments"),
    ("a fold that wants more", {"def fell(door, fact):": "def fell(door, fact, at):",
     "@DOOR.folds(Fell)": "@DOOR.folds(Fell)" + HERE},
     "the function of fact Fell is called with 2 arguments"),
    ("a keyword that nobody gives",
     {"def look(door, query, at):": "def look(door, query, at, *, x):",
     "@DOOR.answers(Look, reply=Seen)": "@DOOR.answers(Look, reply=Seen)" + HERE},
     "the function of query Look is called with 3 arguments"),
    ("a deadline of two arguments", {"def closes(door):": "def closes(door, at):",
     "@DOOR.deadline": "@DOOR.deadline" + HERE}, "`deadline` is called with 1 arguments"),
    ("a coroutine", {"def shut(": "async def shut(", DECIDES: DECIDES + HERE},
     "the function of message Shut is a coroutine or a generator: it must return its result"),
    ("a generator", {"    return ()\n": "    yield from ()\n", "@DOOR.owes": "@DOOR.owes" + HERE},
     "`owes` is a coroutine or a generator: it must return its result"),

    ("a deadline that nothing is due for", {'@DOOR.due("closing")\n': "",
     "@DOOR.deadline": "@DOOR.deadline" + HERE},
     "a deadline needs a function `due` for its name, and that a deadline"),
    ("a due that has no deadline", {"@DOOR.deadline\n": "",
     '@DOOR.due("closing")': '@DOOR.due("closing")' + HERE},
     "a deadline needs a function `due` for its name, and that a deadline"),
    ("a due with a colon", {'@DOOR.due("closing")': '@DOOR.due("closing:1")' + HERE},
     "due 'closing:1': give a name, the part before the colon"),

    ("calls whose answers nobody takes", {TABLE: "@DOOR.calls" + HERE
     + "\ndef calls(door):\n    return ()\n\n\n" + TABLE},
     "`calls` need a function `answered` for their answers, and that `calls`"),
    ("answers of one argument", {TABLE: "@DOOR.calls\ndef calls(door):\n    return ()\n\n\n"
     "@DOOR.answered" + HERE + "\ndef answered(door):\n    return Decision()\n\n\n" + TABLE},
     "`answered` is called with 3 arguments"),

    ("a goal table that misses a member", {TABLE: "DOOR.pursues(phase, {Phase.OPEN: (step,)})",
     PHASE: PHASE + HERE}, "the goal table has no row for Phase.SHUT"),
    ("a goal table of nothing", {TABLE: "DOOR.pursues(phase, {})", PHASE: PHASE + HERE},
     "the goal table has no row"),
    ("a row that is one function", {TABLE: TABLE.replace("(step,)", "step"), PHASE: PHASE + HERE},
     "the row of Phase.OPEN is no tuple of steps"),
    ("a step of one argument", {"def step(door, at):": "def step(door):" + HERE},
     "a step of Phase.OPEN is called with 2 arguments"),
    ("a step that is no function", {TABLE: TABLE.replace("(step,)", "(9,)")},
     "a step of Phase.OPEN is no function"),
    ("a phase of no argument", {PHASE: "def phase():" + HERE},
     "the phase of the goal table is called with 1 arguments"),

    ("a fact that nothing folds", {"@DOOR.folds(Fell)\n": "", DECIDES: DECIDES + HERE,
     "def close(door, at):\n    return _fell()": "def close(door, at):\n    return Decision()"},
     "no function folds the fact Fell that it uses"),
    ("a reply that nothing declares", {DECIDES: "@DOOR.decides(Shut)" + HERE,
     "reply=Seen())": "reply=Rest())", "class Seen(": "class Rest(ActorReply, frozen=True):\n"
     "    pass\n\n\nclass Seen(", "def close(door, at):\n    return _fell()":
     "def close(door, at):\n    return Decision()"},
     "no `reply=` declares the reply Rest that it uses"),
    ("a message that nothing decides", {"class Fell(": "class Open(Message, frozen=True):\n"
     "    pass\n\n\nclass Fell(", "@DOOR.owes": "@DOOR.owes" + HERE,
     "    return ()\n": "    return tuple(Send(at, Open()) for at in ())\n"},
     "no function decides the message Open that it uses"),

    ("two classes of one name", {"class Shut(Message, frozen=True):\n    hard: bool":
     "class Shut(Message, frozen=True):\n    hard: bool\n\n\ndef other():\n"
     "    class Shut(Message, frozen=True):" + HERE + "\n        pass\n    return Shut",
     "def _fell():": "@DOOR.decides(other())\ndef again(door, message, at):\n    return _fell()\n"
     "\n\ndef _fell():"},
     "other.<locals>.Shut is stored by the number of Shut of MODULE: name one of them otherwise"),
    ("a query called as a message", {"class Look(ActorQuery, frozen=True):\n    pass":
     "def other():\n    class Shut(ActorQuery, frozen=True):" + HERE + "\n        pass\n"
     "    return Shut", "@DOOR.answers(Look, reply=Seen)": "@DOOR.answers(other(), reply=Seen)"},
     "other.<locals>.Shut is stored by the number of Shut of MODULE: name one of them otherwise"),
    ("a reply called as a row of listings", {
     "class Seen(": "class Row(ActorReply, frozen=True):" + HERE + "\n    pass\n\n\nclass Seen(",
     "@DOOR.answers(Look, reply=Seen)": "@DOOR.answers(Look, reply=Row)"},
     "Row is stored by the number of Row of peloton.sdk.kit.checking: name one of them otherwise"),
]  # fmt: skip


class Declared:
    """A folder of modules that declare kinds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: list[str] = []

    def module(self, source: str) -> ModuleType:
        name = f"declared_{len(self.names)}"
        self.names.append(name)
        file = self.folder / f"{name}.py"
        file.write_text(source)
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


@pytest.fixture
def declared(tmp_path: Path) -> Iterator[Declared]:
    found = Declared(tmp_path)
    yield found
    for name in found.names:
        del sys.modules[name]


def test_a_good_one_is_a_kind_of_the_runtime(declared: Declared) -> None:
    module = declared.module(GOOD)
    assert problems(module.DOOR) == []
    kind = build(module.DOOR)
    assert (kind.name, kind.group, kind.state) == ("door", "door", module.Door)
    # What every daemon makes of all kinds: numbers that are unlike.
    Codec({"door": kind})
    Packing({"door": kind})


@pytest.mark.parametrize(("what", "changes", "says"), BAD, ids=[row[0] for row in BAD])
def test_a_mistake_is_told_with_its_line(
    declared: Declared, what: str, changes: dict[str, str], says: str
) -> None:
    source = GOOD
    for old, new in changes.items():
        assert source.count(old) == 1, f"{source.count(old)} times in the source: {old}"
        source = source.replace(old, new)
    module = declared.module(source)
    (line,) = problems(module.DOOR)
    place, _, text = line.partition(f": kind {module.DOOR.name}: ")
    assert text == says.replace("MODULE", module.__name__)
    at = [number for number, each in enumerate(source.split("\n"), 1) if each.endswith(HERE)]
    assert place == (f"{module.__file__}:{at[0]}" if at else place)
    assert len(at) == 1 or what in PLACELESS
    with pytest.raises(BadKind) as caught:
        build(module.DOOR)
    assert str(caught.value) == line


PLACELESS = {"a message that is a text", "a step that is no function"}
"""What has no line of its own is named by its text."""


def test_all_mistakes_are_told_at_once(declared: Declared) -> None:
    source = GOOD.replace(STATE, "class Door(ActorState, frozen=False):").replace(
        "def step(door, at)", "def step()"
    )
    texts = [line.rpartition(": ")[2] for line in problems(declared.module(source).DOOR)]
    assert texts == [
        "the state Door is not frozen",
        "a step of Phase.OPEN is called with 2 arguments",
    ]


def test_declaring_checks_nothing(declared: Declared) -> None:
    """So that a module with mistakes is imported, and all are told with their lines."""
    source = "\n".join(line for line in GOOD.split("\n") if not line.startswith("@DOOR.decides"))
    assert problems(declared.module(source).DOOR)
