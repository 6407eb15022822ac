"""How much memory a network needs: in the picture, over a sweep, and as a sentence."""

from __future__ import annotations

import pytest
from matplotlib.axes import Axes

from archgen.outcomes.columns import COLUMNS
from archgen.outcomes.frame import Frame, records, typed_frame
from archgen.outcomes.point import Row
from archgen.plots import memory_figure, sweep_figure
from archgen.report.points import PointView
from archgen.report.ranking import rank
from archgen.report.summary import sentences
from archgen.schema import load_arch
from simmodel.arch import Arch

KIB = 1024
ALONE, FOUR = load_arch("mcu-npu"), load_arch("cocco-simba-4c")
"""384 KiB; four cores of 448 KiB."""
CHIP, CLUSTERS = load_arch("ascend-310-like"), load_arch("stcp920")
"""8 MiB shared by the chip; by each of four clusters."""
SIZE = "arch.memories.local.size"


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


@pytest.mark.parametrize(
    ("arch", "memory", "part"),
    [(ALONE, "local", 1), (FOUR, "local", 4), (CHIP, "shared", 1), (CLUSTERS, "shared", 4)],
)
def test_a_diamond_is_what_each_memory_would_hold(arch: Arch, memory: str, part: int) -> None:
    (axes,) = memory_figure(framed(row(arch, 4096 * KIB)), {arch.name: arch}).axes
    ((at, height),) = marks(axes, "D")
    assert at == 4096 * KIB / part
    sizes = {y: x for x, y in marks(axes, "|")}
    assert sizes[height] == arch.memories.on_chip()[memory].size, "beside the memory that holds it"


def test_a_row_says_what_a_network_needs_and_what_crossed_the_pins_again() -> None:
    data = framed(row(ALONE, 308 * KIB), row(FOUR, None))
    (axes,) = memory_figure(data, {arch.name: arch for arch in (ALONE, FOUR)}).axes
    said = [text.get_text() for text in axes.texts]
    assert said == ["working set 308 KiB\nDRAM traffic × 2.5", "DRAM traffic × 2.5"]
    assert len(marks(axes, "D")) == 2
    assert marks(axes, "D")[1][0] != marks(axes, "D")[1][0], "not known: NaN is not drawn"


def swept(arch: Arch, sizes: list[int]) -> tuple[Frame, dict[str, Arch]]:
    """Machines like `arch` with local memories of `sizes` KiB, on a network of 600 KiB."""
    archs, rows = {}, []
    for size in sizes:
        local = arch.memories.local.model_copy(update={"size": size * KIB})
        memories = arch.memories.model_copy(update={"local": local})
        name = f"{arch.name}-{size}"
        archs[name] = arch.model_copy(update={"name": name, "memories": memories})
        held = row(archs[name], 600 * KIB)
        rows.append(held | {"family": arch.name, SIZE: size * KIB, "latency_ms": 100 / size})
    return framed(*rows), archs


@pytest.mark.parametrize(
    ("arch", "at"),
    [(ALONE, [600.0]), (FOUR, [150.0]), (CHIP, [])],
)
def test_a_sweep_of_the_memory_that_holds_it_has_a_dotted_line(arch: Arch, at: list[float]) -> None:
    """A core of four holds a quarter; where memory is shared, local memory does not hold it."""
    figure = sweep_figure(*swept(arch, [128, 256, 1024]), SIZE)
    latency = next(axes for axes in figure.axes if axes.get_title("left") == "latency [ms]")
    dotted = [line for line in latency.get_lines() if line.get_linestyle() == ":"]
    assert [float(line.get_xdata()[0]) for line in dotted] == at


def test_the_page_says_what_networks_need_and_who_has_less() -> None:
    data = framed(row(ALONE, 308 * KIB), row(FOUR, 4000 * KIB, model="big"), row(CHIP, None))
    archs = {arch.name: arch for arch in (ALONE, FOUR, CHIP)}
    points = [
        PointView(place, found, archs[str(found["arch"])], str(found["model"]), "")
        for place, found in enumerate(records(data))
    ]
    said = sentences(points, rank(points, list(archs.values())), {}, 3)
    assert [each for each in said if each.startswith("Working")] == [
        "Working sets, the results of layers that are alive at once: 308 KiB of net and 3.906 MiB "
        "of big; 1 of 2 runs had less memory on chip for it."
    ]
