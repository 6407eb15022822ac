"""Figures: for any size of study, everything inside the picture and nothing on top of another."""

from __future__ import annotations

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.transforms import BboxBase

from archgen.outcomes.columns import COLUMNS
from archgen.outcomes.frame import Frame, typed_frame
from archgen.outcomes.points import Row
from archgen.plots import (
    area_figure,
    energy_figure,
    latency_figure,
    memory_figure,
    pareto_figure,
    roofline_figure,
    stalls_figure,
    throughput_figure,
    tornado_figure,
    waterfall_figure,
)
from archgen.plots.style import CAUSES as COLOURS
from archgen.plots.style import MEMORIES, MOVED, WORK, title
from archgen.schema import load_arch, shipped_names
from simmodel.arch.record import Arch
from simmodel.trace import CAUSES

ARCHS = {name: load_arch(name) for name in shipped_names()}
MODELS = ["resnet50", "folder/some_rather_long_file_name_of_a_network.onnx", "vit_b16:image=384"]
TORNADO = pd.DataFrame(
    [
        {"parameter": f"memories.local.field_{i}", "low_value": "1 MiB", "high_value": "4 MiB",
         "low": 0.5 / (i + 1), "high": -0.4 / (i + 1)}
        for i in range(50)
    ]
)  # fmt: skip


def row(arch: Arch, model: str, batch: int, index: int) -> Row:
    named: Row = {"arch": arch.name, "model": model, "batch": batch, "dtype": arch.types[0]}
    if index % 7 == 3:
        return named | {"status": "does_not_fit", "reason": "too large"}
    cycles = 10_000 * (index + 1) ** 2
    share = 1 / (len(CAUSES) + 1)
    named |= {
        "status": "ok", "latency_cycles": cycles, "latency_ms": cycles / arch.clock * 1e3,
        "throughput_ips": batch * arch.clock / cycles,
        "macs": 10**9, "efficiency": 0.5, "dram_read_bytes": 10**6 * (index + 1),
        "dram_write_bytes": 10**5, "matrix_busy": share, "verified": index % 5 != 4,
    }  # fmt: skip
    named |= {f"stall_{cause}": share for cause in CAUSES}
    named |= {"of_bound": 0.6, "bound_cycles": cycles * 6 // 10, "bound_by": "matrix"}
    named |= {f"work_{part}": share / 4 for part in WORK}
    named |= {f"moved_{part}": 1 / 3 for part in MOVED}
    named |= {"energy_mj": 4.0, "energy_low_mj": 2.0, "energy_high_mj": 9.0, "area_mm2": 2.0}
    named |= {"energy_mac_mj": 1.0, "energy_dram_mj": 3.0, "area_mac_mm2": 2.0}
    for role, memory in arch.memories.on_chip().items():
        named[f"peak_{role}_bytes"] = memory.size // 2
    return named


def frame(archs: int, models: int, batches: tuple[int, ...] = (1,)) -> Frame:
    chosen = list(ARCHS.values())[:archs]
    points = [(a, m, b) for m in MODELS[:models] for b in batches for a in chosen]
    return typed_frame([row(*point, index) for index, point in enumerate(points)], COLUMNS)


def figures(data: Frame) -> list[Figure]:
    return [
        latency_figure(data),
        throughput_figure(data),
        roofline_figure(data, ARCHS),
        memory_figure(data, ARCHS),
        stalls_figure(data),
        waterfall_figure(data),
    ]


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (len(ARCHS), 2)])
def test_nothing_leaves_the_picture_or_covers_its_neighbours(size: tuple[int, int]) -> None:
    data = frame(*size, batches=(1, 16) if size[0] < 3 else (16,))
    costs = [energy_figure(data), area_figure(data), pareto_figure(data), tornado_figure(TORNADO)]
    for figure in [*figures(data), *costs]:
        canvas = FigureCanvasAgg(figure)
        figure.draw_without_rendering()  # where things are, without the pixels
        renderer = canvas.get_renderer()
        boxes = [axes.get_tightbbox(renderer) for axes in figure.axes if axes.axison]
        boxes += [legend.get_window_extent(renderer) for legend in figure.legends]
        for index, box in enumerate(boxes):
            assert box is not None
            assert min(box.x0, box.y0) >= -2
            assert box.x1 <= figure.bbox.x1 + 2
            assert box.y1 <= figure.bbox.y1 + 2
            assert not any(overlap(box, other) > 2 for other in boxes[index + 1 :])


@pytest.mark.parametrize(
    "words", [["Sweep of local.size"], ["a field and its value,"] * 12, ["x" * 200, "quickest"]]
)
def test_a_title_of_any_length_stays_in_its_picture(words: list[str]) -> None:
    figure = latency_figure(frame(2, 1))
    before = figure.get_suptitle()
    title(figure, f"{before}: {' '.join(words)}")
    figure.draw_without_rendering()
    (said,) = (text for text in figure.texts if text.get_text().startswith(before))
    box = said.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
    assert box.y0 >= figure.axes[0].get_tightbbox().y1 - 1, "it covers no panel"
    assert "".join(said.get_text().split()) == "".join([*before.split(), ":", *words]).replace(
        " ", ""
    )


def overlap(one: BboxBase | None, other: BboxBase | None) -> float:
    """Pixels by which two boxes overlap, in the direction in which they overlap least."""
    assert one is not None
    assert other is not None
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return float(min(width, height))


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_a_refused_point_is_named_and_has_no_bar() -> None:
    data = frame(4, 1)
    for figure in (latency_figure(data), memory_figure(data, ARCHS), stalls_figure(data)):
        assert texts(figure).count("does not fit") == 1
        rows = {round(patch.get_y() + patch.get_height() / 2) for patch in figure.axes[0].patches}
        assert rows == {0, 1, 2}
    assert any(text.startswith("no result") for text in texts(roofline_figure(data, ARCHS)))


def test_only_refused_points_can_be_drawn() -> None:
    data = frame(4, 1).iloc[3:]
    for figure in figures(data.reset_index(drop=True)):
        FigureCanvasAgg(figure).draw()
        assert texts(figure), "a refused point leaves words, not an empty page"


def test_points_that_move_or_multiply_nothing_can_be_drawn() -> None:
    data = frame(1, 1)
    data[["dram_read_bytes", "dram_write_bytes"]] = 0
    (axes,) = roofline_figure(data, ARCHS).axes
    assert axes.get_lines()[-1].get_xdata()[0] == axes.get_xlim()[1]
    data["macs"] = 0
    assert figures(data)


def test_flash_has_a_roof_a_mark_and_a_bar() -> None:
    data = frame(1, 1)
    arch = load_arch("ethos-u55-256-flash")
    plain = waterfall_figure(data)
    data["arch"], data["dtype"], data["flash_read_bytes"] = arch.name, "int8", 10**7
    (axes,) = roofline_figure(data, {arch.name: arch}).axes
    (roof,) = (line for line in axes.get_lines() if line.get_linestyle() == "--")
    assert list(roof.get_ydata()) == [roof.get_xdata()[0] * 0.5, 128.0, 128.0]  # 0.5 GB/s
    (mark,) = (line for line in axes.get_lines() if line.get_markerfacecolor() == "none")
    assert list(mark.get_xdata()) == [10**9 / 10**7]
    for part in MOVED:
        data[f"flash_moved_{part}"] = 0.25
    figure = waterfall_figure(data)
    bars = [[len(each.patches) for each in drawn.axes] for drawn in (plain, figure)]
    assert bars[1] == [count + 4 for count in bars[0]]
    assert "flash" in figure.axes[0].get_xlabel()


def test_what_repeats_most_becomes_rows() -> None:
    many_archs, many_models = latency_figure(frame(5, 1)), latency_figure(frame(1, 3))
    assert [len(axes.get_yticks()) for axes in many_archs.axes] == [5]
    assert [len(axes.get_yticks()) for axes in many_models.axes] == [3]


def test_stalls_fill_the_bar() -> None:
    axes = stalls_figure(frame(1, 1)).axes[0]
    assert max(patch.get_x() + patch.get_width() for patch in axes.patches) == pytest.approx(100)


def test_every_cause_and_memory_has_its_own_colour() -> None:
    assert set(COLOURS) == set(CAUSES)
    assert len(set(COLOURS.values())) == len(COLOURS)
    assert len(set(MEMORIES.values())) == len(MEMORIES)
