"""All tensors of a graph in one arithmetic, and the bounds of their errors.

The one idea: a bound takes longer than the value, and where a program stores just what is expected
nobody asks for one. So a bound may be put off: it is derived when one is asked for, in the order in
which they were put off, and never where what follows from it is dropped before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np

from compiler.tensor_ir.interpreter import TensorViews, view_of
from compiler.tensor_ir.nest import Array, NestGraph
from simmodel.arch.lazy_array import AnyArray

_HELD = 1 << 26
"""Bytes of tensors that bounds are put off with."""


@dataclass(frozen=True)
class _PutOff:
    """A bound that nobody has asked for."""

    name: str
    reads: frozenset[str]
    """Buffers that it is derived from."""
    held: Mapping[str, int]
    """Bytes that it keeps, by buffer."""
    make: Callable[[], Array | None]


class BoundedTensors:
    """The tensors, and the error bounds of their stored values."""

    def __init__(self, tensors: TensorViews, graph: NestGraph) -> None:
        self.tensors = tensors
        self._graph = graph
        self._errors: dict[str, Array] = {}
        self._waiting: list[_PutOff] = []
        self._dropped: set[str] = set()
        """Buffers whose errors those that wait may read."""

    def error_of(self, name: str) -> Array | None:
        """Error bound of the stored values of a tensor; None: exact."""
        self._derive_all()
        return self._derived(name)

    def unsure(self, name: str) -> bool:
        """Whether there may be an error bound; none is derived for that."""
        buffer = self._graph.buffer_of(name)
        waits = any(self._graph.buffer_of(each.name) == buffer for each in self._waiting)
        return waits or self._derived(name) is not None

    def _derived(self, name: str) -> Array | None:
        tensor = self._graph.tensors[name]
        flat = self._errors.get(tensor.storage.buffer)
        known = None if flat is None else view_of(tensor, flat)
        return known if known is not None and known.any() else None

    def widen(self, name: str, more: Array) -> None:
        """Add to the error bound of a tensor."""
        known = self.error_of(name)
        self.set_error(name, more if known is None else known + more)

    def set_error(self, name: str, error: Array | None) -> None:
        tensor = self._graph.tensors[name]
        buffer = tensor.storage.buffer
        if any(buffer in (*each.reads, self._graph.buffer_of(each.name)) for each in self._waiting):
            self._waiting.append(_PutOff(name, frozenset(), {}, lambda: error))
            return
        if error is not None and buffer not in self._errors:
            self._errors[buffer] = np.zeros(self._graph.buffers[buffer], np.float32)
        if buffer in self._errors:
            view_of(tensor, self._errors[buffer])[...] = 0.0 if error is None else error

    def put_off(
        self, name: str, tensors: Mapping[str, AnyArray], make: Callable[[], Array | None]
    ) -> None:
        """Set the error bound of a tensor to what `make` gives, once a bound is asked for: it
        follows from the `tensors` and from their bounds as they are now."""
        graph = self._graph
        reads = frozenset(graph.buffer_of(each) for each in tensors if each != name)
        made = {name: each for name, each in tensors.items() if isinstance(each, np.ndarray)}
        places = {graph.buffer_of(each): values.itemsize for each, values in made.items()}
        held = {buffer: size * graph.buffers[buffer] for buffer, size in places.items()}
        self._waiting.append(_PutOff(name, reads, held, make))
        if sum(dict(chain.from_iterable(w.held.items() for w in self._waiting)).values()) > _HELD:
            self._derive_all()

    def before_writing(self, name: str) -> None:
        """Derive the bounds that follow from what lies where a tensor is going to be."""
        buffer = self._graph.buffer_of(name)
        if any(buffer in each.reads for each in self._waiting):
            self._derive_all()

    def drop(self, buffer: str) -> None:
        """Forget a buffer that nobody reads again, and bounds that nobody can ask for."""
        self.tensors.drop(buffer)
        self._dropped.add(buffer)
        wanted: set[str] = set()
        kept: list[_PutOff] = []
        for each in reversed(self._waiting):
            own = self._graph.buffer_of(each.name)
            if own in wanted or own not in self._dropped:
                kept.append(each)
                wanted |= each.reads
        self._waiting = kept[::-1]
        for gone in self._dropped - wanted:
            self._errors.pop(gone, None)
        self._dropped &= wanted

    def _derive_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self.set_error(each.name, each.make())
