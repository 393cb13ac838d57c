"""Any daemon answers any call: lists, stories and changes of shards that live elsewhere."""

from __future__ import annotations

from typing import Any

from peloton.runtime.core.links.packing import Packing
from peloton.runtime.core.reading.inspection import FollowChanges, shard_key
from peloton.runtime.core.reading.listing import Listed
from peloton.runtime.shells.shell_messages import Drop, send
from peloton.runtime.simulation.world import World
from peloton.runtime.vocabulary import Key, Unavailable, key
from tests.toy import messages as w
from tests.toy.kinds import KINDS

X = key("note", "x")


def fleet(seed: int = 1) -> World:
    world = World(KINDS, seed=seed, sizes={"house": 3, "city": 1})
    for name in ("d1", "d2", "d3"):
        world.start(name, roles=("house", "city"))
    world.run_until(world.whole, within_s=60)
    world.run_for(2)
    return world


def answers(world: World, future: Any) -> Any:
    world.run_until(future.done, within_s=60)
    return future.result()


def test_every_daemon_lists_all_notes_and_tells_every_story():
    world = fleet()
    regions = [daemon.region for daemon in world.living()]
    for number in range(6):
        assert answers(world, regions[0].ask(key("note", number), w.Add(number))) == w.Total(number)
    for region in regions:
        listed = answers(world, region.views("note"))
        assert sorted(listed) == [(key("note", at), at) for at in range(6)]
        (line,) = answers(world, region.story(key("note", 3)))
        assert line.facts == (w.Added(3),)


def test_what_is_set_aside_anywhere_is_listed_and_driven_from_anywhere():
    world = fleet()
    first, *others = (daemon.region for daemon in world.living())
    answers(world, first.ask(X, w.Add(1)))
    answers(world, first.ask(X, w.Add(13)))
    for region in others:
        ((of, fact),) = answers(world, region.quarantine())
        assert of == X and "13 is not added" in fact.error
    answers(world, others[0].redrive(X))
    assert len(answers(world, first.quarantine())) == 1, "it was tried, and failed again"
    story = answers(world, first.story(X))
    assert len([line for line in story if "try 3 failed" in line.because]) == 2


def test_changes_are_read_once_each_across_a_takeover():
    world = fleet()
    shard = world.sharding.shard_of(X)
    owner = next(d for d in world.living() if shard in d.shards())
    reader = next(d for d in world.living() if d is not owner)
    begin = answers(world, reader.region.changes(shard, None)).mark
    for amount in (1, 2):
        answers(world, reader.region.ask(X, w.Add(amount)))
    world.kill(owner)
    world.run_until(world.whole, within_s=60)
    world.run_for(2)
    answers(world, reader.region.ask(X, w.Add(3)))
    page = answers(world, reader.region.changes(shard, begin))
    rows = [world.codec.decode_entry(row).facts for _, _, _, row in page.rows]
    assert not page.gap and rows == [(w.Added(1),), (w.Added(2),), (w.Added(3),)]
    rest = answers(world, reader.region.changes(shard, page.mark))
    assert rest.rows == () and not rest.gap


def test_a_list_is_never_a_part():
    world = fleet()
    reader = world.living()[0]
    for daemon in world.living()[1:]:
        daemon.freeze()
    answer = answers(world, reader.region.views("note"))
    assert isinstance(answer, Unavailable)


def test_summaries_travel_as_values_of_their_kind():
    packing = Packing(KINDS)
    listed = Listed("note", (w.Total(3), w.Total(4)))
    body = packing.pack_answer(Key("shard/house/0"), listed)
    assert packing.unpack_answer(Key("shard/house/0"), body) == listed


def test_mail_is_taken_however_long_ago_its_sender_read_a_view():
    """A shard that begins anew under the same owner node: nothing changes that others watch.

    While views were dated by how far their reader had come, all others stayed behind for ever.
    """
    world = fleet()
    shard = world.sharding.shard_of(X)
    owner = next(d for d in world.living() if shard in d.shards())
    others = [daemon for daemon in world.living() if daemon is not owner]
    world.run_for(30)  # sessions beat, and nobody reads
    for client in world.ensemble.clients:
        if client.name.startswith(f"{owner.name}."):
            client.request_view()
    world.run_for(2)
    before = owner.region.routes.shards[shard]
    send(before, Drop((shard,)))
    world.run_until(
        lambda: owner.region.routes.shards.get(shard) not in (None, before) and world.whole(),
        within_s=60,
    )
    for number, daemon in enumerate(others, 1):
        assert answers(world, daemon.region.ask(X, w.Add(1))) == w.Total(number)


def test_a_follower_elsewhere_goes_on_across_takeovers() -> None:
    """Each position once and in order, though the shard has three owners meanwhile."""
    world = fleet()
    shard = world.sharding.shard_of(X)
    where = shard_key(shard)
    reader = next(d for d in world.living() if shard not in d.shards())
    mark = answers(world, reader.region.follow(where, FollowChanges())).mark
    seen: list[tuple[int, int]] = []
    amounts: list[int] = []
    refused = 0
    for amount in range(1, 9):
        future = reader.region.follow(where, FollowChanges(mark, names=("x",)))
        world.run_for(1.0)
        assert not future.done(), "nothing is new, and no timer answers"
        owner = next(d for d in world.living() if shard in d.shards())
        if amount in (3, 6) and owner is not reader:
            world.kill(owner)
            world.run_until(world.whole, within_s=60)
            world.restart(owner)
            world.run_for(2.0)
        asked = reader.region.ask(X, w.Add(amount))
        while not amounts or amounts[-1] < amount:
            read = answers(world, future)
            if isinstance(read, Unavailable):
                refused += 1
                world.run_for(0.1)
            else:
                assert not read.gap
                seen += [(position, k) for position, k, _, _ in read.rows]
                changes = reader.region.changes_in(read)
                amounts += [fact.amount for change in changes for fact in change.line.facts]
                mark = read.mark
            if not amounts or amounts[-1] < amount:
                future = reader.region.follow(where, FollowChanges(mark, names=("x",)))
        assert answers(world, asked) == w.Total(sum(range(amount + 1)))
    assert amounts == [*range(1, 9)] and refused >= 1
    assert seen == sorted(dict.fromkeys(seen))
