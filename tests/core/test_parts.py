"""Parts of a checkpoint: things of any size go in, and come out whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from peloton.runtime.core import checkpoint as c
from peloton.runtime.core.entities.encoding import encode

SIZES = st.sampled_from([0, 1, 100, c.PIECE_BYTES_MAX - 1, c.PIECE_BYTES_MAX])
LARGE = st.sampled_from([c.PIECE_BYTES_MAX + 1, 2 * c.PIECE_BYTES_MAX, 3 * c.PIECE_BYTES_MAX + 7])


@given(st.lists(SIZES | LARGE, max_size=5), st.integers(1, 3))
def test_what_is_cut_is_whole_again(sizes: list[int], pieces_a_part: int) -> None:
    things = [c.CheckpointItem(c.ENTITY, bytes([n % 251]) * size) for n, size in enumerate(sizes)]
    pieces = list(c.fitting(iter(things)))
    assert all(len(piece.body) <= c.PIECE_BYTES_MAX for piece in pieces)
    parts = [encode(pieces[at : at + pieces_a_part]) for at in range(0, len(pieces), pieces_a_part)]
    assert list(c.read_parts(parts)) == things
