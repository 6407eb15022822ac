"""Windows that slide: kernel, strides, pads and dilations as affine positions."""

from __future__ import annotations

from typing import Any

from compiler.nest.ir import Affine, Dim
from compiler.ops.node import Node


class Geometry:
    """Kernel, strides, pads and dilations, each a tuple over spatial dimensions."""

    def __init__(self, kernel: tuple[int, ...], strides: Any, pads: Any, dilations: Any) -> None:
        count = len(kernel)
        self.kernel = tuple(int(k) for k in kernel)
        self.strides = tuple(strides or (1,) * count)
        self.pads = tuple(pads or (0,) * 2 * count)
        self.dilations = tuple(dilations or (1,) * count)

    @classmethod
    def of(cls, node: Node, kernel: tuple[int, ...]) -> Geometry:
        """From a node's attributes."""
        attribute = node.attribute
        return cls(kernel, attribute("strides"), attribute("pads"), attribute("dilations"))

    @property
    def planes(self) -> Geometry:
        """Of three dimensions of which nothing slides along the first, the other two."""
        count = len(self.kernel)
        slides = (self.kernel[:1], self.strides[:1], self.pads[::count])
        if count < 3 or slides != ((1,), (1,), (0, 0)):
            return self
        pads = (*self.pads[1:count], *self.pads[count + 1 :])
        return Geometry(self.kernel[1:], self.strides[1:], pads, self.dilations[1:])

    @property
    def padded(self) -> bool:
        """Whether anything outside the input is read."""
        return any(self.pads)

    def dims(self) -> tuple[Dim, ...]:
        """Loops over kernel positions."""
        return tuple(Dim(name, k) for name, k in zip("ij", self.kernel, strict=False))

    def index(self, first_out: int, first_tap: int) -> tuple[Affine, ...]:
        """Input positions: out * stride + tap * dilation - pad."""
        return tuple(
            Affine(
                ((first_out + axis, stride), (first_tap + axis, dilation)),
                -self.pads[axis],
            )
            for axis, (stride, dilation) in enumerate(
                zip(self.strides, self.dilations, strict=True)
            )
        )

    def pad(self, codes: dict[str, Any]) -> tuple[float | None, None, int]:
        """Access fields: pad value, scale, zero point of the input."""
        return (0.0 if self.padded else None), None, codes.get("a_zero", 0)
