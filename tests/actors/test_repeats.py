"""The last result of a pure function is given again for the same two objects, and only for them."""

from __future__ import annotations

from peloton.actors.repeats import kept_for_repeat


def test_only_a_repeat_with_the_same_objects_gets_the_last_result() -> None:
    calls: list[tuple[str, list[int]]] = []

    @kept_for_repeat
    def joined(name: str, numbers: list[int]) -> str:
        calls.append((name, numbers))
        return f"{name}{numbers}"

    one, equal = [1], [1]
    assert joined("a", one) == joined("a", one) == "a[1]"
    assert len(calls) == 1
    assert joined("a", equal) == "a[1]" and len(calls) == 2, "an equal object is another one"
    assert joined("b", equal) == "b[1]" and len(calls) == 3
    assert joined("a", one) == "a[1]" and len(calls) == 4, "only the last result is kept"


def test_what_raises_leaves_the_last_result() -> None:
    @kept_for_repeat
    def halved(number: int, _: str) -> int:
        if number % 2:
            raise ValueError(number)
        return number // 2

    assert halved(4, "x") == 2
    for _ in range(2):
        try:
            halved(3, "x")
        except ValueError:
            continue
        raise AssertionError("it must raise each time")
    assert halved(4, "x") == 2
