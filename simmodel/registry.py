"""Tables that users may add to, and that know what has been added.

The one idea: what a table held when it was made is what is shipped; the sources that are part of
every key of a stored result stand for that. What came later is known to this process alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

Value = TypeVar("Value")


class Registry(dict[str, Value]):
    """A table by name, to which extensions add."""

    every: ClassVar[list[Registry[Any]]] = []
    """All of them, in the order in which they were made."""

    def __init__(self, what: str, shipped: Mapping[str, Value]) -> None:
        """`what` it holds, as users call that: `operator`."""
        super().__init__(shipped)
        self.what, self.shipped = what, dict(shipped)
        Registry.every.append(self)

    def foreign(self) -> list[str]:
        """Names whose value is not the one that was shipped."""
        names = {**self.shipped, **self}
        none = object()
        return [n for n in names if self.get(n, none) is not self.shipped.get(n, none)]
