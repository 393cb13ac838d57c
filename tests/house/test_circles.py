"""No two modules need each other; and a circle is noticed."""

from __future__ import annotations

from tests.house.circles import circle
from tests.house.tree import Module, hold, read


def test_no_modules_import_each_other() -> None:
    found = " -> ".join(circle(read("peloton")))
    hold([f"{found} import each other: move what they share into a module below"] if found else [])


def test_a_circle_is_noticed() -> None:
    modules = [
        Module("peloton/a.py", "from peloton.b import x"),
        Module("peloton/b.py", "if TYPE_CHECKING:\n    from peloton import c"),
        Module("peloton/c.py", "def f():\n    from .a import y"),
    ]
    assert set(circle(modules)) == {"peloton.a", "peloton.b", "peloton.c"}
    assert circle(modules[:2]) == []
