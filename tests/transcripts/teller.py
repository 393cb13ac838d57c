"""A transcript: one shard driven line by line, and what it printed.

Turns commands into calls of one shard and its outcomes into text. The test compares the text with
the file, and the file is read by people.

    send KEY MESSAGE ARGS… [members=0-2,4] [from=KEY] [origin=0-2] [ask=NAME] [request=NAME]
    ready        run turns: prints the round, which is now in flight
    safe         the round is durable: prints what leaves
    run          ready and safe, until nothing is left to do
    after 1.5    time passes, and nothing runs
    show KEY     state of a cell, or classes and columns of a crowd
    recover      the process dies: a new shard from what is durable
    redrive KEY
"""

from __future__ import annotations

from typing import Any

from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import Bits, Key, Message, Value
from tests.toy import messages as w
from tests.toy.bench import START_S, Bench, Round


class Teller:
    """One shard and the transcript's commands."""

    def __init__(self) -> None:
        self.bench = Bench(checkpoint_bytes_min=1 << 30)
        self.in_flight: Round | None = None

    def do(self, line: str) -> list[str]:
        """Run one command; the lines it prints."""
        name, *words = line.split()
        run: Any = getattr(self, f"do_{name}")
        return run(*words) or []

    def do_send(self, to: str, message: str, *words: str) -> list[str]:
        options = dict(word.split("=", 1) for word in words if "=" in word)
        values = [_value(word) for word in words if "=" not in word]
        sent: Message = getattr(w, message)(*values)
        request = options.get("request")
        envelope = Envelope(
            Key(to),
            sent,
            _members(options.get("members", "")),
            sender=Key(options["from"]) if "from" in options else None,
            origin=_members(options.get("origin", "")),
            reply_to=options.get("ask"),
            request=(request, repr(sent).encode()) if request else None,
        )
        self.bench.shard.take([envelope])
        return []

    def do_ready(self) -> list[str]:
        assert self.in_flight is None, "one round at a time"
        ready = self.in_flight = self.bench.ready()
        lines = [f"load {key}" for key in ready.load]
        if ready.frame is not None:
            _, entries = self.bench.codec.decode_frame(ready.frame)
            lines.append(f"frame {ready.position}")
            lines += [f"  {_entry(entry)}" for entry in entries]
        lines += [f"ended {row.key}{' deleted' * row.deleted}" for row in ready.ended]
        if ready.wake_at is not None:
            lines.append(f"wake after {ready.wake_at - self.bench.now:.1f} s")
        return lines or ["nothing"]

    def do_safe(self) -> list[str]:
        ready, self.in_flight = self.in_flight, None
        assert ready is not None, "nothing is in flight"
        self.bench.write(ready)
        self.bench.shard.committed()
        for key in ready.load:
            self.bench.shard.loaded(key, self.bench.ended.get(key))
        lines = [f"reply {reply.reply_to}: {_text(reply.value)}" for reply in ready.replies]
        return lines + [f"send {_envelope(envelope)}" for envelope in ready.release]

    def do_run(self) -> list[str]:
        lines: list[str] = []
        while True:
            round_ = self.do_ready()
            lines += [line for line in round_ if not line.startswith(("wake", "nothing"))]
            lines += self.do_safe()
            if not self.bench.shard.busy:
                return lines or ["nothing"]

    def do_after(self, seconds: str) -> list[str]:
        self.bench.now = round(self.bench.now + float(seconds), 3)
        return [f"{self.bench.now - START_S:.1f} s"]

    def do_show(self, key: str) -> list[str]:
        population = self.bench.shard.population
        crowd = population.crowds.get(Key(key))
        if crowd is None:
            return [_text(population.cells.get(Key(key)))]
        return [f"{Bits(raw)!r} {_text(state)}" for state, raw in crowd.split(crowd.present)]

    def do_recover(self) -> list[str]:
        self.bench.shard, self.in_flight = self.bench.replay(), None
        return [f"at position {self.bench.shard.position}"]

    def do_redrive(self, key: str) -> list[str]:
        self.bench.shard.redrives.order(Key(key))
        return []


def replayed(text: str) -> str:
    """The transcript again: its commands, and what they print now."""
    teller = Teller()
    out: list[str] = []
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        commands = lines[: lines.index("----")] if "----" in lines else lines
        out += commands
        if any(not line.startswith("#") for line in commands):
            out.append("----")
            for command in commands:
                if not command.startswith("#"):
                    out += teller.do(command)
        out.append("")
    return "\n".join(out)


def _value(word: str) -> Any:
    if word in ("on", "off"):
        return word == "on"
    if "," in word:
        return tuple(int(part) for part in word.split(","))
    return int(word)


def _members(text: str) -> int:
    raw = 0
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        raw |= Bits.span(int(first), int(last or first) + 1).raw
    return raw


def _text(value: Any) -> str:
    if not isinstance(value, Value):
        return repr(value)
    fields = (f"{name}={_text(getattr(value, name))}" for name in value.__struct_fields__)
    return f"{type(value).__name__}({', '.join(fields)})"


def _entry(entry: Any) -> str:
    members = f" {Bits(entry.members)!r}" if entry.members else ""
    facts = ", ".join(_text(fact) for fact in entry.facts)
    because = f" because {entry.because}" if entry.because else ""
    return f"{entry.key}{members} on {entry.cause or '-'}: {facts}{because}"


def _envelope(envelope: Envelope) -> str:
    members = f" {Bits(envelope.members)!r}" if envelope.members else ""
    origin = f" {Bits(envelope.origin)!r}" if envelope.origin else ""
    return f"{envelope.to}{members} {_text(envelope.message)} from {envelope.sender}{origin}"
