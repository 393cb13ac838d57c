"""The shells that wait for the store: works of many shards share a round; a reader asks again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from peloton.runtime.core.codec import Entry
from peloton.runtime.ports import (
    Answer,
    Committed,
    Damaged,
    EndedRow,
    Frame,
    ShardId,
    Unclear,
    Unreachable,
    Work,
)
from peloton.runtime.shells import journal as shells_journal
from peloton.runtime.shells.journal import READ_AGAIN_S, JournalShell, ReaderShell
from peloton.runtime.shells.shell import Shell
from peloton.runtime.shells.shell_messages import (
    Claim,
    ClaimRefused,
    ClaimTaken,
    Commit,
    DropClaim,
    Load,
    Loaded,
    Release,
    Released,
    Settle,
    ShellFailed,
    WorkDone,
    send,
)
from peloton.runtime.simulation.memory_journal import (
    AnswerLost,
    MemoryJournal,
    MemoryStore,
    StoreCall,
)
from peloton.runtime.simulation.scheduled import begun
from peloton.runtime.vocabulary import key
from tests.shells.stage import NOTE, Desk, HandDriver, Stage
from tests.toy import messages as w

SHARDS = [ShardId("house", 0), ShardId("house", 1), ShardId("city", 0)]


class Rounds(MemoryJournal):
    """Counts what comes in each round, and does something while the round is under way."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store, process=b"c" * 16)
        self.rounds: list[tuple[str, list[ShardId]]] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def commit(self, works: Sequence[Work]) -> list[Answer]:
        self.rounds.append(("commit", [work.shard for work in works]))
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return super().commit(works)

    def settle(self, shards: Sequence[ShardId]) -> list[Answer]:
        self.rounds.append(("settle", [*shards]))
        return super().settle(shards)


class Office:
    """A journal shell, and a desk for the shell of each shard."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.driver = self.stage.driver
        self.journal = Rounds(self.stage.store)
        root = self.stage.root
        self.shell = begun(JournalShell(self.driver, journal=self.journal, root=root.ref))
        self.desks = {shard: begun(Desk(str(shard), self.driver)) for shard in SHARDS}
        self.epochs = {
            shard: self.stage.claim(shard, self.journal).claimed.epoch for shard in SHARDS
        }

    def send_work(self, shard: ShardId, position: int = 1) -> None:
        codec = self.stage.context.codec
        body = codec.encode_frame(1.0, [codec.encode_entry(Entry(NOTE, (w.Added(1),)))])
        work = Work(shard=shard, epoch=self.epochs[shard], frame=Frame(position, body))
        send(self.shell.ref, Commit(work, self.desks[shard].ref))

    def answers(self) -> list[list[type]]:
        """What the shells were answered, in the order of `SHARDS`."""
        return [[type(done.answer) for done in self.desks[shard].taken()] for shard in SHARDS]


def test_works_of_several_shards_make_one_round_and_each_is_answered():
    office = Office()
    for shard in SHARDS:
        office.send_work(shard)
    office.driver.run()
    assert office.journal.rounds == [("commit", SHARDS)]
    assert office.answers() == [[Committed], [Committed], [Committed]]


def test_what_comes_while_a_round_is_under_way_makes_the_next():
    office = Office()
    office.send_work(SHARDS[0])

    def more() -> None:
        office.send_work(SHARDS[1])
        office.send_work(SHARDS[2])

    office.journal.meanwhile = more
    office.driver.run()
    assert office.journal.rounds == [("commit", SHARDS[:1]), ("commit", SHARDS[1:])]
    assert office.answers() == [[Committed], [Committed], [Committed]]


def test_a_round_above_the_limit_of_the_journal_is_made_two(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shells_journal, "ROUND_SHARDS_MAX", 2)
    office = Office()
    for shard in SHARDS:
        office.send_work(shard)
    office.driver.run()
    assert office.journal.rounds == [("commit", SHARDS[:2]), ("commit", SHARDS[2:])]
    assert office.answers() == [[Committed], [Committed], [Committed]]


def test_an_unclear_round_goes_to_all_its_shards_and_settling_is_a_round_too():
    office = Office()
    lost = iter([True])

    def lose(call: StoreCall) -> None:
        unlucky = call.shard in SHARDS[:1] and call.moment == "after"
        if unlucky and next(lost, False):
            raise AnswerLost("no answer")

    office.journal.hook = lose
    for shard in SHARDS[:2]:
        office.send_work(shard)
    office.driver.run()
    assert office.answers() == [[Unclear], [Unclear], []]

    send(office.shell.ref, Settle(SHARDS[0], office.desks[SHARDS[0]].ref))
    office.send_work(SHARDS[2])
    office.driver.run()
    assert office.journal.rounds[1:] == [("commit", SHARDS[2:]), ("settle", SHARDS[:1])]
    assert office.answers() == [[Committed], [], [Committed]]
    send(office.shell.ref, Settle(SHARDS[1], office.desks[SHARDS[1]].ref))
    office.driver.run()
    assert office.answers() == [[], [Committed], []]


def test_a_release_is_answered_and_the_claim_is_not_held_any_more():
    office = Office()
    shard, desk = SHARDS[0], office.desks[SHARDS[0]]
    send(office.shell.ref, Release(shard, office.epochs[shard], desk.ref))
    office.driver.run()
    assert desk.taken() == [Released()]
    office.send_work(shard)
    office.driver.run()
    [done] = desk.taken()
    assert isinstance(done, WorkDone) and "is not held here" in done.answer.text


def test_a_claim_that_is_forgotten_is_let_go_of_but_not_a_younger_one():
    office = Office()
    shard = SHARDS[0]
    epoch = office.epochs[shard] = office.stage.claim(shard, office.journal).claimed.epoch
    send(office.shell.ref, DropClaim(shard, epoch - 1))
    office.send_work(shard)
    office.driver.run()
    assert office.answers()[0] == [Committed], "an older shell was late"
    send(office.shell.ref, DropClaim(shard, epoch))
    office.driver.run()
    office.send_work(shard, position=2)
    office.driver.run()
    assert office.answers()[0] != [Committed]


def test_a_journal_that_raises_ends_the_daemon_and_answers_nobody():
    office = Office()

    def break_down() -> None:
        raise OSError("no space left")

    office.journal.meanwhile = break_down
    office.send_work(SHARDS[0])
    office.driver.run()
    assert office.stage.root.taken() == [
        ShellFailed("journal", "OSError: no space left", fatal=True)
    ]
    assert office.answers() == [[], [], []], "the work may have been written"


# ---- the reader ----


class Weak(MemoryJournal):
    """Raises what it is told to, at the next reads."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store, process=b"w" * 16)
        self.raises: list[Exception] = []

    def read_ended(self, shard: ShardId, *, kind: str, key: str) -> EndedRow | None:
        if self.raises:
            raise self.raises.pop(0)
        return super().read_ended(shard, kind=kind, key=key)


def reader() -> tuple[Weak, Shell, Desk, HandDriver]:
    stage = Stage()
    journal = Weak(stage.store)
    shell = begun(ReaderShell("reader-0", stage.driver, journal=journal, root=stage.root.ref))
    return journal, shell, begun(Desk("shard", stage.driver)), stage.driver


def test_a_claim_is_answered_with_all_that_the_shard_holds():
    _, shell, desk, driver = reader()
    send(shell.ref, Claim(SHARDS[0], desk.ref))
    driver.run()
    [taken] = desk.taken()
    assert isinstance(taken, ClaimTaken) and taken.claimed.epoch == 1
    assert (taken.parts, taken.frames) == ([], [])


def test_nothing_is_claimed_for_a_shell_that_is_no_more():
    journal, shell, desk, driver = reader()
    desk.stop()
    desk.actor_ref.actor_stopped.set()
    send(shell.ref, Claim(SHARDS[0], desk.ref))
    driver.run()
    register = journal.store.shards[SHARDS[0]].register
    assert register.epoch == 0, "a claim would fence the shard's next owner"


def test_a_claim_without_an_answer_is_refused_as_unreachable():
    journal, shell, desk, driver = reader()

    def lose(call: StoreCall) -> None:
        raise AnswerLost("no answer")

    journal.hook = lose
    send(shell.ref, Claim(SHARDS[0], desk.ref))
    driver.run()
    assert desk.taken() == [ClaimRefused("no answer", unreachable=True)]


def test_final_states_that_cannot_be_read_now_are_read_later_and_the_others_at_once():
    journal, shell, desk, driver = reader()
    journal.raises = [Unreachable("no answer"), Damaged("row: checksum")]
    names = tuple(key("note", name) for name in ("a", "b", "c"))
    send(shell.ref, Load(SHARDS[0], names, desk.ref))
    driver.run()
    assert desk.taken() == [Loaded([(names[2], None)], [(names[1], "Damaged: row: checksum")])]
    driver.after(READ_AGAIN_S)
    assert desk.taken() == [Loaded([(names[0], None)])]
    driver.after(10 * READ_AGAIN_S)
    assert desk.taken() == [], "once is enough"
