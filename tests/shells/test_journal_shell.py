"""The shells that wait for the store: each round is one call of it; a reader asks again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.entities.codec import Entry
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
from peloton.runtime.shells.features import LevelReader
from peloton.runtime.shells.journal import READ_AGAIN_S, JournalShell, ReaderShell
from peloton.runtime.shells.shell import Shell
from peloton.runtime.shells.shell_messages import (
    Claim,
    ClaimRefused,
    ClaimTaken,
    Commit,
    DropClaim,
    EpochObeyed,
    Load,
    Loaded,
    Release,
    Released,
    Settle,
    ShellFailed,
    WorkDone,
    send,
)
from peloton.runtime.simulation.memory_rows import MemoryRows
from peloton.runtime.simulation.scheduled import begun
from peloton.runtime.vocabulary import key
from tests.shells.stage import NOTE, Desk, HandDriver, Stage
from tests.toy import messages as w
from tests.toy.hooked_rows import AnswerLost, HookedRows, StoreCall

SHARDS = [ShardId("house", 0), ShardId("house", 1), ShardId("city", 0)]


class Rounds(FencedRows):
    """Counts what comes in each round, and does something while the round is under way."""

    def __init__(self, store: MemoryRows) -> None:
        self.hooked = HookedRows(store)
        super().__init__(self.hooked, process=b"c" * 16)
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
        self.asker = begun(Desk("round", self.driver))
        self.desks = {shard: begun(Desk(str(shard), self.driver)) for shard in SHARDS}
        self.epochs = {
            shard: self.stage.claim(shard, self.journal).claimed.epoch for shard in SHARDS
        }

    def work(self, shard: ShardId, position: int = 1) -> Work:
        codec = self.stage.context.codec
        body = codec.encode_frame(1.0, [codec.encode_entry(Entry(NOTE, (w.Added(1),)))])
        return Work(shard=shard, epoch=self.epochs[shard], frame=Frame(position, body))

    def send_works(self, *shards: ShardId, position: int = 1) -> None:
        """As the round shell does."""
        works = {self.desks[shard].ref: self.work(shard, position) for shard in shards}
        send(self.shell.ref, Commit(works, self.asker.ref))

    def answers(self) -> list[dict[ShardId, type]]:
        """What the round shell was answered, each time."""
        names = {desk.ref: shard for shard, desk in self.desks.items()}
        return [
            {names[ref]: type(answer) for ref, answer in done.answers.items()}
            for done in self.asker.taken()
        ]


def test_a_round_is_one_call_of_the_journal_and_each_work_is_answered():
    office = Office()
    office.send_works(*SHARDS)
    office.driver.run()
    assert office.journal.rounds == [("commit", SHARDS)]
    assert office.answers() == [dict.fromkeys(SHARDS, Committed)]


def test_rounds_are_never_made_one_as_their_frames_stand_for_themselves():
    office = Office()
    office.send_works(SHARDS[0])
    office.send_works(*SHARDS[1:])
    office.driver.run()
    assert office.journal.rounds == [("commit", SHARDS[:1]), ("commit", SHARDS[1:])]
    assert office.answers() == [{SHARDS[0]: Committed}, dict.fromkeys(SHARDS[1:], Committed)]


def test_what_is_unclear_is_settled_by_one_call_too():
    office = Office()
    lost = iter([True])

    def lose(call: StoreCall) -> None:
        if call.moves() and call.moment == "after" and next(lost, False):
            raise AnswerLost("no answer")

    office.journal.hooked.hook = lose
    office.send_works(SHARDS[0])
    office.driver.run()
    assert office.answers() == [{SHARDS[0]: Unclear}]

    send(office.shell.ref, Settle({office.desks[SHARDS[0]].ref: SHARDS[0]}, office.asker.ref))
    office.driver.run()
    assert office.journal.rounds[1:] == [("settle", SHARDS[:1])]
    assert office.answers() == [{SHARDS[0]: Committed}]


def test_a_release_is_answered_and_the_claim_is_not_held_any_more():
    office = Office()
    shard, desk = SHARDS[0], office.desks[SHARDS[0]]
    send(office.shell.ref, Release(shard, office.epochs[shard], desk.ref))
    office.driver.run()
    assert desk.taken() == [Released()]
    office.send_works(shard)
    office.driver.run()
    [done] = office.asker.taken()
    assert isinstance(done, WorkDone) and "not owned here" in done.answers[desk.ref].text


def test_a_claim_that_is_forgotten_is_let_go_of_but_not_a_younger_one():
    office = Office()
    shard = SHARDS[0]
    epoch = office.epochs[shard] = office.stage.claim(shard, office.journal).claimed.epoch
    send(office.shell.ref, DropClaim(shard, epoch - 1))
    office.send_works(shard)
    office.driver.run()
    assert office.answers() == [{shard: Committed}], "an older shell was late"
    send(office.shell.ref, DropClaim(shard, epoch))
    office.driver.run()
    office.send_works(shard, position=2)
    office.driver.run()
    assert office.answers() != [{shard: Committed}]


def test_a_journal_that_raises_ends_the_daemon_and_answers_nobody():
    office = Office()

    def break_down() -> None:
        raise OSError("no space left")

    office.journal.meanwhile = break_down
    office.send_works(SHARDS[0])
    office.driver.run()
    assert office.stage.root.taken() == [
        ShellFailed("journal", "OSError: no space left", fatal=True)
    ]
    assert office.answers() == [], "the work may have been written"


# ---- the reader ----


class Weak(FencedRows):
    """Raises what it is told to, at the next reads."""

    def __init__(self, store: MemoryRows) -> None:
        self.hooked = HookedRows(store)
        super().__init__(self.hooked, process=b"w" * 16)
        self.raises: list[Exception] = []

    def read_ended(self, shard: ShardId, *, kind: str, key: str) -> EndedRow | None:
        if self.raises:
            raise self.raises.pop(0)
        return super().read_ended(shard, kind=kind, key=key)


def reader() -> tuple[Weak, Shell, Desk, HandDriver]:
    stage = Stage()
    journal = Weak(stage.store)
    level = LevelReader(stage.context.codec, journal)
    shell = begun(ReaderShell("reader-0", stage.driver, level=level, root=stage.root.ref))
    return journal, shell, begun(Desk("shard", stage.driver)), stage.driver


def test_a_claim_is_answered_with_all_that_the_shard_holds():
    _, shell, desk, driver = reader()
    send(shell.ref, Claim(SHARDS[0], desk.ref))
    driver.run()
    [taken] = desk.taken()
    assert isinstance(taken, ClaimTaken) and taken.claimed.epoch == 1
    assert (taken.parts, taken.frames) == ([], [])


def test_a_claim_below_an_epoch_that_was_obeyed_is_lost_and_the_next_one_is_above():
    """As after a restore of the journal, while what obeys its owners remembers later ones."""
    _, shell, desk, driver = reader()
    send(shell.ref, Claim(SHARDS[0], desk.ref))
    driver.run()
    [taken] = desk.taken()
    assert taken.claimed.epoch == 1
    for epoch in (1, 6, 4):
        send(shell.ref, EpochObeyed(SHARDS[0], epoch))
    driver.run()
    refused = desk.taken()
    assert [type(each) for each in refused] == [ClaimRefused] * 2, "the first is its own"
    assert "epoch 6 was obeyed before, and this claim is epoch 1" in refused[0].text
    send(shell.ref, Claim(SHARDS[0], desk.ref))
    driver.run()
    [taken] = desk.taken()
    assert taken.claimed.epoch == 7
    send(shell.ref, EpochObeyed(SHARDS[0], 6))
    driver.run()
    assert desk.taken() == [], "a late word of what is past"


def test_nothing_is_claimed_for_a_shell_that_is_no_more():
    journal, shell, desk, driver = reader()
    desk.stop()
    desk.actor_ref.actor_stopped.set()
    send(shell.ref, Claim(SHARDS[0], desk.ref))
    driver.run()
    register = journal.hooked.rows.registers[SHARDS[0]]
    assert register.epoch == 0, "a claim would fence the shard's next owner"


def test_a_claim_without_an_answer_is_refused_as_unreachable():
    journal, shell, desk, driver = reader()

    def lose(call: StoreCall) -> None:
        raise AnswerLost("no answer")

    journal.hooked.hook = lose
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
