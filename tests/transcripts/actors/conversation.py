"""A conversation: three shards with the real kinds, and the messages between them.

Turns the commands of a transcript into messages, and prints the facts that each shard journals and
the messages that leave. A message to another shard waits, under a number, until the transcript
delivers, drops or repeats it; so every order of events can be shown. Clients, operators, placers
and backends are played by the transcript: what is sent to them is printed with `->` and goes no
further. The test compares the text with the file.

    given COMMAND            run a command, deliver all that follows within a second; print nothing

    pool P cpu=3 [gpu=0]     a client creates a pool with this limit
    host H cpu=4 [gpu=0]     a machine appears, and its backend lists no runs
    job J pool=P [instances=1] [cpu=1] [gpu=0] [failures=0] [limit=0] [gang=0]
    stop J [0-2]             a client stops a job, or some of its instances
    delete J [force]         a client deletes a job
    show J                   what a client sees of a job and its first instances

    placed J WISH 0-2 H…     a placer answers wish number WISH of slice 0 with a host per member
    together J WISH 0-2 H…   … or the wish of a gang
    started H RUN…           the backend of H reports that runs started
    ended H RUN… ok|failed   … or ended
    unplaced J WISH 0-2      … or that no host has room now, and it keeps the wish
    room J ORDER H=1…        a placer answers what hosts have free, for an order of lot 0
    backend H up|down        the backend of H can be asked from now on, or cannot
    listed H [RUN…]          … or answers the question what runs
    snapshot                 a placer asks the inventory for all hosts

    deliver [N…]             messages N arrive, or all that wait
    drop N…                  they never arrive
    repeat N                 a message that was delivered arrives once more
    settle                   deliver until nothing waits
    after 1.5                time passes, second by second, and every shard does what is due
    recover GROUP            the owner of a shard dies; the next one begins with the journal
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from peloton.actors.host import messages as h
from peloton.actors.host.inventory.messages import OpenInventory, inventory_key
from peloton.actors.job import messages as j
from peloton.actors.job.messages import JobView
from peloton.actors.job.slice.messages import ListInstances, slice_key
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.lot.messages import lot_key
from peloton.actors.respool.messages import ROOT, CreatePool, OpenRoot, PoolConfig, pool_key
from peloton.actors.respool.reclaims import PreemptionPolicy
from peloton.actors.task.messages import End, RunOutcome
from peloton.assembly.kinds import kinds
from peloton.placement.messages import GangPlaced, Placed, RoomFound, SnapshotWanted, Unplaced
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.core.turning.resends import RESEND_TICK_S
from peloton.runtime.vocabulary import Bits, Key, Message, key, kind_of
from tests.toy.bench import START_S, Bench
from tests.transcripts.actors.brief import brief, members

GROUPS = ("jobmgr", "resmgr", "hostmgr")
OUTCOMES = {
    "ok": RunOutcome(End.SUCCEEDED, 0),
    "failed": RunOutcome(End.FAILED, 1, reason="exit", message="exit code 1"),
}
CHECKPOINT_NEVER = 1 << 30
GIVEN_S = 1.0
GIVEN_BACK_AFTER_S = 2.0
ROUNDS_MAX = 100


class Conversation:
    """The shards, and what is on its way between them."""

    def __init__(self) -> None:
        sizes = dict.fromkeys(GROUPS, 1)
        self.kinds = kinds(sizes, preemption=PreemptionPolicy(sustained_s=GIVEN_BACK_AFTER_S))
        self.shards = {
            group: Bench(
                group, sizes=sizes, kinds=self.kinds, checkpoint_bytes_min=CHECKPOINT_NEVER
            )
            for group in GROUPS
        }
        for bench in self.shards.values():
            bench.shard.epoch = 1
        self.sent: list[Envelope] = []  # number N stands at N - 1
        self.waiting: list[int] = []
        self.do("given open")

    # ---- the transcript's commands ----

    def do(self, line: str) -> list[str]:
        """Run one command; the lines it prints."""
        name, *words = line.split()
        if name == "given":
            lines = [*self.do(" ".join(words)), *self.do_settle()]
            refused = [line for line in lines if "Refused(" in line or "Unavailable(" in line]
            assert not refused, refused
            # Reports, such as the capacity of the cluster, are told at intervals.
            self.do_after(str(GIVEN_S))
            self.do_settle()
            # Numbers begin with the first message that is shown.
            self.sent = []
            return []
        run: Any = getattr(self, f"do_{name}")
        return run(*words)

    def do_open(self) -> list[str]:
        return self._tell(ROOT, OpenRoot()) + self._tell(inventory_key(0), OpenInventory())

    def do_pool(self, name: str, *words: str) -> list[str]:
        limit = _amounts(words)
        config = PoolConfig(name, ROOT, Resources(), limit)
        return self._tell(pool_key(name), CreatePool(config), asks=True)

    def do_host(self, name: str, *words: str) -> list[str]:
        room = _amounts(words)
        host = key("host", name)
        lines = self._tell(host, h.ConfigureHost(room, (), key("backend", name)))
        return lines + self._tell(host, h.BackendUp()) + self._tell(host, h.RunsListed(()))

    def do_job(self, name: str, *words: str) -> list[str]:
        options = {
            "instances": 1,
            "failures": 0,
            "limit": 0,
            "gang": 0,
            **_options(words),
        }
        pool = next(word for word in words if word.startswith("pool=")).partition("=")[2]
        default = TaskConfig(
            resources=_amounts(words, cpu=1),
            command=Command("work"),
            max_failures=options["failures"],
        )
        count, limit = options["instances"], options["limit"]
        spec = JobSpec(
            name,
            "someone",
            pool_key(pool),
            count,
            default,
            maximum_running=limit,
            minimum_running=options["gang"],
        )
        return self._tell(j.job_key(name), j.CreateJob(spec, drawn=True), asks=True)

    def do_stop(self, name: str, some: str = "") -> list[str]:
        ranges = ()
        if some:
            first, _, last = some.partition("-")
            ranges = ((int(first), int(last or first) + 1),)
        return self._tell(j.job_key(name), j.StopJob(ranges), asks=True)

    def do_delete(self, name: str, force: str = "") -> list[str]:
        return self._tell(j.job_key(name), j.DeleteJob(force == "force"), asks=True)

    def do_show(self, name: str) -> list[str]:
        view = self._ask(j.job_key(name), j.GetJob())
        if not isinstance(view, JobView):
            return [f"client hears {brief(view)}"]
        counts = ", ".join(f"{count} {state}" for state, count in view.summary.counts)
        lines = [f"job {name} is {view.summary.state.name}: {counts}"]
        instances = self._ask(slice_key(name, 0), ListInstances(0, 5))
        for one in instances if isinstance(instances, tuple) else ():
            where = f" on {one.host}" if one.host else ""
            why = f", because {one.because}" if one.because else ""
            lines.append(f"  instance {one.instance}: {one.state}, run {one.run}{where}{why}")
        return lines

    def do_placed(self, name: str, wish: str, some: str, *hosts: str) -> list[str]:
        to = tuple(key("host", host) for host in hosts)
        placed = Placed(int(wish), _members(some), to)
        return self._tell(slice_key(name, 0), placed, sender=Key("placer/a"))

    def do_unplaced(self, name: str, wish: str, some: str) -> list[str]:
        answer = Unplaced(int(wish), _members(some), (("no_offer", 1),), "no host fits", kept=True)
        return self._tell(slice_key(name, 0), answer, sender=Key("placer/a"))

    def do_room(self, name: str, order: str, *words: str) -> list[str]:
        free = {key("host", host): cpus for host, cpus in _options(words).items()}
        found = tuple(Resources(cpus * UNIT) for cpus in free.values())
        answer = RoomFound(lot_key(name, 0, shape_number=0), int(order), tuple(free), found)
        return self._tell(Key(f"slice/{name}/0"), answer)

    def do_together(self, name: str, wish: str, some: str, *hosts: str) -> list[str]:
        to = tuple(key("host", host) for host in hosts)
        placed = GangPlaced(int(wish), (Placed(int(wish), _members(some), to),))
        return self._tell(slice_key(name, 0), placed, sender=Key("placer/a"))

    def do_started(self, host: str, *runs: str) -> list[str]:
        return self._tell(key("host", host), h.RunsStarted(runs))

    def do_ended(self, host: str, *words: str) -> list[str]:
        *runs, how = words
        ends = tuple(h.RunEnd(run, OUTCOMES[how]) for run in runs)
        return self._tell(key("host", host), h.RunsEnded(ends))

    def do_backend(self, host: str, way: str) -> list[str]:
        message = h.BackendUp() if way == "up" else h.BackendDown("the connection broke")
        return self._tell(key("host", host), message)

    def do_listed(self, host: str, *runs: str) -> list[str]:
        return self._tell(key("host", host), h.RunsListed(runs))

    def do_snapshot(self) -> list[str]:
        placer = Key("placer/a")
        return self._tell(inventory_key(0), SnapshotWanted(placer), sender=placer)

    # ---- messages on their way ----

    def do_deliver(self, *numbers: str) -> list[str]:
        chosen = [int(number) for number in numbers] or [*self.waiting]
        self._take_off(chosen)
        return self._hand_over(chosen)

    def do_drop(self, *numbers: str) -> list[str]:
        self._take_off(int(number) for number in numbers)
        return []

    def do_repeat(self, number: str) -> list[str]:
        assert int(number) not in self.waiting, f"{number} was not delivered yet"
        return self._hand_over([int(number)])

    def do_settle(self) -> list[str]:
        lines: list[str] = []
        for _ in range(ROUNDS_MAX):
            if not self.waiting:
                return lines
            lines += self.do_deliver()
        raise AssertionError("the conversation does not come to rest")

    def do_after(self, seconds: str) -> list[str]:
        left, lines = float(seconds), []
        while left > 0:
            step = min(left, RESEND_TICK_S)
            left -= step
            lines += self._pass(step)
        now = self.shards["jobmgr"].now - START_S
        return [f"{now:.1f} s", *lines]

    def _pass(self, seconds: float) -> list[str]:
        lines = []
        for bench in self.shards.values():
            bench.now = round(bench.now + seconds, 3)
        for group in GROUPS:
            lines += self._run(group)
        return lines

    def do_recover(self, group: str) -> list[str]:
        bench = self.shards[group]
        epoch = bench.shard.epoch + 1
        bench.shard = bench.replay()
        bench.shard.epoch = epoch
        return [f"epoch {epoch}", *self._run(group)]

    def _take_off(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.waiting.remove(number)

    def _hand_over(self, numbers: Iterable[int]) -> list[str]:
        lines = []
        for number in numbers:
            envelope = self.sent[number - 1]
            group = self.kinds[kind_of(envelope.to)].group
            self.shards[group].shard.take([envelope])
            lines += [f"{number} arrives: {_short(envelope)}", *self._run(group)]
        return lines

    # ---- the shards ----

    def _tell(
        self, to: Key, message: Message, *, sender: Key | None = None, asks: bool = False
    ) -> list[str]:
        group = self.kinds[kind_of(to)].group
        reply_to = "client" if asks else None
        self.shards[group].shard.take([Envelope(to, message, sender=sender, reply_to=reply_to)])
        return self._run(group)

    def _ask(self, to: Key, query: Message) -> Any:
        bench = self.shards[self.kinds[kind_of(to)].group]
        bench.shard.take([Envelope(to, query, reply_to="reader")])
        bench.replies = []
        bench.rest()
        return bench.answers()[-1]

    def _run(self, group: str) -> list[str]:
        """Frames until the shard is idle; each is safe before anything of it leaves."""
        bench = self.shards[group]
        facts: list[str] = []
        leaving: list[str] = []
        for _ in range(ROUNDS_MAX):
            bench.replies = []
            ready = bench.once()
            if ready.frame is not None:
                _, entries = bench.codec.decode_frame(ready.frame)
                facts += [f"  {group}: {_fact(entry)}" for entry in entries]
            leaving += [f"  client hears {brief(reply.value)}" for reply in bench.replies]
            leaving += [f"  {self._send(envelope)}" for envelope in bench.taken()]
            if not bench.shard.busy:
                return facts + leaving
        raise AssertionError(f"{group} does not come to rest")

    def _send(self, envelope: Envelope) -> str:
        if kind_of(envelope.to) not in self.kinds:
            return f"-> {_short(envelope)}"
        self.sent.append(envelope)
        self.waiting.append(len(self.sent))
        return f"({len(self.sent)}) {_short(envelope)}"


def retold(text: str) -> str:
    """The transcript again: its commands, and what they print now.

    Blocks are separated by an empty line; what follows `----` in a block was printed.
    """
    conversation = Conversation()
    blocks = []
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        told = lines[: lines.index("----")] if "----" in lines else lines
        commands = [line for line in told if not line.startswith("#")]
        printed = [line for command in commands for line in conversation.do(command)]
        silent = all(command.startswith(("given", "drop")) for command in commands)
        blocks.append("\n".join([*told, *([] if silent else ["----", *(printed or ["nothing"])])]))
    return "\n\n".join(blocks) + "\n"


def _options(words: Iterable[str]) -> dict[str, int]:
    pairs = (word.split("=", 1) for word in words if "=" in word)
    return {name: int(value) for name, value in pairs if value.isdigit()}


def _amounts(words: Iterable[str], cpu: int = 0) -> Resources:
    found = _options(words)
    return Resources(cpu=found.get("cpu", cpu) * UNIT, gpu=found.get("gpu", 0) * UNIT)


def _members(text: str) -> Bits:
    found = Bits()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found = found | Bits.span(int(first), int(last or first) + 1)
    return found


def _fact(entry: Entry) -> str:
    some = f" {members(Bits(entry.members))}" if entry.members else ""
    because = f"   because {entry.because}" if entry.because else ""
    return f"{entry.key}{some} {', '.join(brief(fact) for fact in entry.facts)}{because}"


def _short(envelope: Envelope) -> str:
    some = f" {members(Bits(envelope.members))}" if envelope.members else ""
    by = f" from {envelope.sender}" if envelope.sender else ""
    by += f" {members(Bits(envelope.origin))}" if envelope.origin else ""
    return f"{envelope.to}{some} {brief(envelope.message)}{by}"
