"""ONNX Runtime's quantizer, in time that grows with the number of nodes and not with its square.

The one idea: it looks for constants and readers by name through whole lists, again for each value.
Here the network that it works on has an index of both, kept as it adds to them; what it decides is
its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import onnx
from onnxruntime.quantization import QDQQuantizer, base_quantizer, qdq_quantizer
from onnxruntime.quantization.onnx_model import ONNXModel

_SEARCHING = (base_quantizer, qdq_quantizer)
"""Modules of ONNX Runtime with a function that searches a list for a name."""


class LinearQuantizer(QDQQuantizer):  # type: ignore[misc]
    """`QDQQuantizer` on a network with an index."""

    @property
    def model(self) -> _Indexed:
        """The network."""
        return self._model

    @model.setter
    def model(self, plain: ONNXModel) -> None:
        self._model = _Indexed(plain.model)

    def quantize_model(self) -> onnx.ModelProto:
        """The network, quantized."""
        with _looking_up():
            made: onnx.ModelProto = super().quantize_model()
            return made


@contextmanager
def _looking_up() -> Iterator[None]:
    """Lets ONNX Runtime look names up where a list has an index."""
    searching = {module: module.find_by_name for module in _SEARCHING}

    def found(name: str, items: Iterable[Any]) -> Any:
        if isinstance(items, _Constants):
            return items.by_name.get(name)
        return next((item for item in items if item.name == name), None)

    try:
        for module in searching:
            module.find_by_name = found
        yield
    finally:
        for module, before in searching.items():
            module.find_by_name = before


class _Constants:
    """The constants of a graph, which can be looked up."""

    def __init__(self, held: Sequence[onnx.TensorProto]) -> None:
        self._held = held
        self.by_name = {tensor.name: tensor for tensor in held}

    def __iter__(self) -> Iterator[onnx.TensorProto]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


class _Indexed(ONNXModel):  # type: ignore[misc]
    """A network whose constants and readers are found by name."""

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__(model)
        self._constants = _Constants(model.graph.initializer)
        self._readers: dict[str, list[onnx.NodeProto]] = super().input_name_to_nodes()

    def initializer(self) -> _Constants:
        """All constants."""
        return self._constants

    def get_initializer(self, name: str) -> onnx.TensorProto | None:
        """The constant called ``name``."""
        return self._constants.by_name.get(name)

    def add_initializer(self, tensor: onnx.TensorProto) -> None:
        """Adds a constant unless there is one of that name."""
        if tensor.name not in self._constants.by_name:
            self.initializer_extend([tensor])

    def initializer_extend(self, inits: Sequence[onnx.TensorProto]) -> None:
        """Adds constants."""
        for tensor in inits:
            held = self.model.graph.initializer.add()
            held.CopyFrom(tensor)
            self._constants.by_name.setdefault(tensor.name, held)

    def add_node(self, node: onnx.NodeProto) -> None:
        """Adds a node at the end."""
        super().add_node(node)
        held = self.model.graph.node[-1]
        for name in held.input:
            self._readers.setdefault(name, []).append(held)

    def input_name_to_nodes(self) -> dict[str, list[onnx.NodeProto]]:
        """The readers of each value."""
        return self._readers

    def replace_input_of_all_nodes(self, old_input_name: str, new_input_name: str) -> None:
        """Lets all readers of one value read another one."""
        moved = self._readers.pop(old_input_name, [])
        for node in moved:
            self.replace_node_input(node, old_input_name, new_input_name)
        self._readers.setdefault(new_input_name, []).extend(moved)
