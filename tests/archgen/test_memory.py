"""How much memory a network needs: in the picture, over a sweep, and as a sentence."""

from __future__ import annotations

from matplotlib.axes import Axes

from archgen.outcomes.columns import COLUMNS
from archgen.outcomes.frame import Frame, typed_frame
from archgen.outcomes.point import Row
from archgen.plots import memory_figure
from archgen.schema import load_arch
from simmodel.arch import Arch

KIB = 1024
ALONE, FOUR = load_arch("mcu-npu"), load_arch("cocco-simba-4c")
"""384 KiB; four cores of 448 KiB."""
CHIP, CLUSTERS = load_arch("ascend-310-like"), load_arch("stcp920")
"""8 MiB shared by the chip; by each of four clusters."""


def row(arch: Arch, working_set: int | None, **more: str | int) -> Row:
    found: Row = {"arch": arch.name, "model": "net", "batch": 1, "dtype": "int8", "status": "ok"}
    found |= {f"peak_{role}_bytes": 64 * KIB for role in arch.memories.on_chip()}
    found |= {"latency_ms": 1.0, "compulsory_bytes": 100, "dram_read_bytes": 180,
              "dram_write_bytes": 70}  # fmt: skip
    return found | ({} if working_set is None else {"working_set_bytes": working_set}) | more


def framed(*rows: Row) -> Frame:
    return typed_frame(rows, COLUMNS)


def marks(axes: Axes, marker: str) -> list[tuple[float, float]]:
    """Places of all marks of a kind, in order."""
    lines = [line for line in axes.get_lines() if line.get_marker() == marker]
    return [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in lines]


def test_a_row_says_what_a_network_needs_and_what_crossed_the_pins_again() -> None:
    data = framed(row(ALONE, 308 * KIB), row(FOUR, None))
    (axes,) = memory_figure(data, {arch.name: arch for arch in (ALONE, FOUR)}).axes
    said = [text.get_text() for text in axes.texts]
    assert said == ["working set 308 KiB\nDRAM traffic × 2.5", "DRAM traffic × 2.5"]
    assert len(marks(axes, "D")) == 2
    assert marks(axes, "D")[1][0] != marks(axes, "D")[1][0], "not known: NaN is not drawn"
