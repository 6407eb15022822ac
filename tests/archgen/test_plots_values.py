"""Figures: what is drawn is what the frames say, read back from bars, lines and shades."""

from __future__ import annotations

import math
import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

import archgen.plots as plots
from archgen.outcomes.columns import LAYER_COLUMNS, LEVEL_COLUMNS, SPAN_COLUMNS
from archgen.outcomes.frame import Frame, typed_frame
from archgen.outcomes.points import Row
from archgen.plots.findings import extremes
from archgen.plots.over_time import stretches
from archgen.plots.pareto import front_places
from archgen.plots.saving import (
    DRAWN,
    EXPLORE,
    OVERVIEWS,
    detail_figures,
    keep_only,
    overview_figures,
)
from archgen.plots.style import (
    CAUSES,
    COMPONENTS,
    HATCHES,
    MEMORIES,
    WORK,
    engine_colour,
    with_final_layout,
)
from archgen.process.start import DamagedFile
from archgen.schema import load_arch

EDGE = load_arch("soma-edge")
ARCHS = {EDGE.name: EDGE}
POINT: Row = {
    "arch": EDGE.name, "model": "net", "batch": 1, "dtype": "int8", "fusion": "optimal",
    "halo": "auto", "objective": "latency", "effort": 1,
}  # fmt: skip


def lengths(axes: Axes, row: int) -> list[float]:
    """Lengths of the bars in a row, from the left."""
    bars = [p for p in axes.patches if abs(p.get_y() + p.get_height() / 2 - row) < 0.4]
    return [bar.get_width() for bar in sorted(bars, key=lambda bar: bar.get_x())]


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for axes in figure.axes for text in axes.texts)


def results(*rows: Row) -> Frame:
    return pd.DataFrame([POINT | {"status": "ok", "verified": True} | row for row in rows])


def layers() -> Frame:
    shared = {"operator": "Conv", "busy_matrix_cycles": 400}
    rows: list[Row] = [
        {"node": "a+b", "group": 0, "start_cycle": 0, "end_cycle": 600, "executed_macs": 1_000_000,
         "products_cycles": 120, "peak_local_bytes": EDGE.memories.local.size // 2,
         "dram_read_bytes": 4000, "dram_write_bytes": None},
        {"node": "c", "group": 1, "start_cycle": 200, "end_cycle": 1000, "executed_macs": 500_000,
         "dram_read_bytes": 1000, "dram_write_bytes": 1000},
        {"node": "d", "group": 2, "start_cycle": 900, "end_cycle": 1003, "executed_macs": 0},
    ]  # fmt: skip
    return typed_frame([POINT | shared | row for row in rows], LAYER_COLUMNS)


def spans(cores: int = 2) -> Frame:
    work = [
        ("matrix", 0, 100, 400), ("matrix", 1, 500, 900),
        ("load", 0, 0, 100), ("load", 1, 100, 500),
    ]  # fmt: skip
    rows: list[Row] = [
        POINT | {"core": core, "engine": engine, "group": group, "node": "a", "instructions": 1,
                 "start_cycle": start, "end_cycle": end}
        for core in range(cores) for engine, group, start, end in work
    ]  # fmt: skip
    host: Row = {"core": -1, "engine": "host", "group": 2, "start_cycle": 900, "end_cycle": 1000}
    return typed_frame([*rows, POINT | host], SPAN_COLUMNS)


def levels() -> Frame:
    known = {
        ("occupancy", "local"): [EDGE.memories.local.size // 2, 0],
        ("occupancy", "local.bank0"): [EDGE.memories.local.bank_size, 0],
        ("occupancy", "local.bank1"): [EDGE.memories.local.bank_size // 4, 0],
        ("bandwidth", "dram.read"): [8.0, 4.0],
        ("bandwidth", "dram.write"): [2.0, 0.0],
    }
    rows = [
        POINT | {"kind": kind, "name": name, "cycle": 500 * place, "value": float(value)}
        for (kind, name), values in known.items()
        for place, value in enumerate(values)
    ]
    return typed_frame(rows, LEVEL_COLUMNS)


def test_throughput_is_drawn_below_its_bound() -> None:
    row: Row = {"throughput_ips": 50.0, "of_bound": 0.5}
    axes = plots.throughput_figure(results(row)).axes[0]
    assert lengths(axes, 0) == [50.0]
    assert [line.get_xdata()[0] for line in axes.get_lines()] == [100.0]
    axes = plots.throughput_figure(results(row | {"in_flight": 3})).axes[0]
    assert all(np.isnan(line.get_xdata()[0]) for line in axes.get_lines())


def test_energy_and_area_are_stacked_from_their_parts() -> None:
    parts: Row = {"energy_mac_mj": 1.0, "energy_link_mj": 0.0, "energy_dram_mj": 3.0}
    total: Row = {"energy_mj": 4.0, "energy_low_mj": 2.0, "energy_high_mj": 9.0}
    figure = plots.energy_figure(results(parts | total))
    assert lengths(figure.axes[0], 0) == [1.0, 3.0]
    assert list(figure.axes[0].get_lines()[0].get_xdata()) == [2.0, 9.0]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["mac", "DRAM", "low to high"]
    area: Row = {"area_mm2": 5.0, "area_mac_mm2": 2.0, "area_other_mm2": 3.0}
    figure = plots.area_figure(results(area, area | {"model": "other"}))
    assert len(figure.axes[0].get_yticks()) == 1, "a machine has one area, whatever runs"
    assert lengths(figure.axes[0], 0) == [2.0, 3.0]


def test_what_is_missing_is_said() -> None:
    refused = results({"status": "does_not_fit"}, {"energy_mj": math.nan, "area_mm2": None})
    refused["energy_mac_mj"] = math.nan
    assert "does not fit" in texts(plots.energy_figure(refused))
    assert "no value" in texts(plots.energy_figure(refused))
    assert "no value" in texts(plots.area_figure(refused.assign(area_mm2=math.nan)))
    assert "no point" in texts(plots.pareto_figure(refused.assign(latency_ms=math.nan)))


@pytest.mark.parametrize(
    ("more", "expected"),
    [((False, False), [0, 1, 4]), ((True, False), [4, 3]), ((False, True), [0, 2])],
)
def test_the_front_is_what_nothing_dominates(more: tuple[bool, bool], expected: list[int]) -> None:
    assert front_places([(1, 5), (2, 3), (3, 6), (4, 4), (3, 1)], more) == expected


def test_the_front_is_labelled_and_the_rest_grey() -> None:
    rows: list[Row] = [
        {"arch": name, "latency_ms": x, "area_mm2": y}
        for name, x, y in [("quick", 1.0, 9.0), ("small", 5.0, 2.0), ("worse", 6.0, 8.0)]
    ]
    axes = plots.pareto_figure(results(*rows)).axes[0]
    grey, marks = axes.get_lines()
    assert grey.get_xydata().tolist() == [[6.0, 8.0]]
    assert marks.get_xydata().tolist() == [[1.0, 9.0], [5.0, 2.0]]
    assert marks.get_drawstyle() == "steps-post"  # what one trades for the other costs both
    assert {text.get_text() for text in axes.texts} >= {"quick", "small"}
    with pytest.raises(KeyError, match="speed"):
        plots.pareto_figure(results(*rows), "speed")


def test_equal_points_of_a_front_have_one_name() -> None:
    rows: list[Row] = [
        {"arch": name, "latency_ms": x, "area_mm2": y}
        for name, x, y in [("a", 1.0, 9.0), ("b", 1.0, 9.0), ("c", 1.0, 9.0), ("small", 5.0, 2.0)]
    ]
    axes = plots.pareto_figure(results(*rows)).axes[0]
    named = {text.get_text() for text in axes.texts} & {"a and 2 equal", "b", "c", "small"}
    assert named == {"a and 2 equal", "small"}


def test_what_stands_on_no_front_for_want_of_a_result_is_named() -> None:
    rows: list[Row] = [
        {"arch": f"edge-{n}", "latency_ms": 1.0 + n, "area_mm2": 9.0 - n} for n in range(3)
    ]
    refused: list[Row] = [
        {"arch": f"small-{n}", "latency_ms": math.nan, "area_mm2": 1.0, "status": "does_not_fit"}
        for n in range(6)
    ]
    broken: Row = {"arch": "odd", "latency_ms": math.nan, "area_mm2": 1.0, "status": "failed"}
    axes = plots.pareto_figure(results(*rows, *refused, broken)).axes[0]
    first, said = axes.get_xlabel().split("\n", 1)
    assert first == "latency [ms], less is better"
    assert " ".join(said.split()) == (
        "not shown: small-0, small-1, small-2, small-3 and 2 more (does not fit); odd (failed)"
    )
    none = texts(plots.pareto_figure(results(*refused[:2])))
    assert "small-0, small-1 (does not fit)" in " ".join(none.split())


def test_labels_cover_no_point_and_no_label() -> None:
    rows: list[Row] = [
        {"arch": f"machine-{i}", "latency_ms": 1 + i % 5 / 9, "area_mm2": 2.0 - i / 40}
        for i in range(40)
    ]
    figure = plots.pareto_figure(results(*rows))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    boxes = [text.get_window_extent() for text in axes.texts if text.get_color() != "#222222"]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    places = [p for line in axes.get_lines()[::2] for p in line.get_xydata()]
    spots = axes.transData.transform(places)
    assert not any(box.contains(*spot) for box in boxes for spot in spots)


def test_among_many_points_names_are_numbers_with_a_key() -> None:
    best: list[Row] = [{"arch": "small", "latency_ms": 2.0, "area_mm2": 1.0},
                       {"arch": "quick", "latency_ms": 1.0, "area_mm2": 2.0}]  # fmt: skip
    rest: list[Row] = [
        {"arch": f"m{i}", "latency_ms": 2 + i / 40, "area_mm2": 2.5} for i in range(40)
    ]
    figure = plots.pareto_figure(results(*best, *rest))
    assert {"1", "2"} <= {text.get_text() for text in figure.axes[0].texts}
    key = [text.get_text() for text in figure.legends[0].get_texts()]
    assert key[-2:] == ["1  quick", "2  small"]


def test_the_tornado_sorts_by_what_matters() -> None:
    rows = [
        {"parameter": "small", "low_value": "1", "high_value": "2", "low": 0.01, "high": -0.02},
        {"parameter": "large", "low_value": "3", "high_value": "4", "low": 0.5, "high": math.nan},
    ]
    figure = plots.tornado_figure(pd.DataFrame(rows).assign(metric="latency_ms"))
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["large", "small"]
    assert lengths(axes, 0) == [50.0]
    assert sorted(lengths(axes, 1)) == [-2.0, 1.0]
    assert "4: no result" in texts(figure)
    # What is no change, or missing, has its words where the other bar is not.
    still = [rows[0] | {"parameter": "still", "low": 0.3, "high": end} for end in (0.0, math.nan)]
    words = plots.tornado_figure(pd.DataFrame(still)).axes[0].texts
    assert [text.get_ha() for text in words] == ["left", "right"] * 2
    assert "latency_ms" in axes.get_xlabel()
    many = pd.DataFrame([rows[0] | {"parameter": f"p{i}"} for i in range(60)])
    assert len(plots.tornado_figure(many).axes[0].get_yticks()) == 40


def test_time_is_dealt_out_by_the_ends_of_groups() -> None:
    rows = [{"group": g, "start_cycle": s, "end_cycle": e} for g, s, e in
            [(0, 0, 600), (1, 200, 1000), (2, 300, 900), (3, 0, 50)]]  # fmt: skip
    found = [(part.group, part.start, part.end) for part in stretches(rows)]
    assert found == [(3, 0, 50), (0, 50, 600), (2, 600, 900), (1, 900, 1000)]


def test_utilization_is_over_a_layers_own_time() -> None:
    when, use, full = plots.utilization_figure(layers(), ARCHS).axes
    assert lengths(use, 0) == pytest.approx([100 * 120 / 600 / EDGE.core_count])
    assert use.get_lines()[0].get_xdata()[0] == pytest.approx(100 * 120 / 400)
    assert [label.get_text() for label in when.get_yticklabels()] == ["a + (0)", "c (1)", "d (2)"]
    (local,) = full.patches
    assert local.get_data().values.tolist() == [50, 0, 0]


def test_of_many_layers_the_longest_are_drawn() -> None:
    rows = [POINT | {"node": f"n{i}", "group": i, "start_cycle": 10 * i, "executed_macs": 1,
                     "end_cycle": 11 * i + 10} for i in range(100)]  # fmt: skip
    figure = plots.utilization_figure(typed_frame(rows, LAYER_COLUMNS), ARCHS)
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == [f"n{i} ({i})" for i in range(28, 100)]
    said = " ".join(figure.get_suptitle().split())
    assert "n99 takes longest, 10 %" in said and "28 shortest" in said


def test_engines_have_lanes_and_groups_take_turns() -> None:
    figure = plots.gantt_figure(spans(), ARCHS)
    ruler, axes = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["0 matrix", "0 load", "1 matrix", "1 load", "host"]
    assert [text.get_text() for text in ruler.texts] == ["0", "1", "2"]
    drawn = [
        (collection.get_paths()[0].get_extents().bounds, tuple(collection.get_facecolor()[0][:3]))
        for collection in axes.collections if collection.get_paths()
    ]  # fmt: skip
    full = to_rgb(engine_colour(EDGE, "matrix"))
    (start, _, width, _), colour = drawn[0]
    assert (start, width) == (100, 300)
    assert colour == pytest.approx(full)
    assert drawn[1][1] != pytest.approx(full), "a group of odd number is light"
    assert "(36 more cores)" in plots.gantt_figure(spans(60), ARCHS).get_suptitle()


def test_memories_are_drawn_as_shares_of_their_size() -> None:
    axes = plots.occupancy_figure(levels(), ARCHS).axes[0]
    assert list(axes.patches[0].get_data().values) == [50, 0]
    assert "50 %" in axes.get_title("left")
    image = plots.banks_figure(levels(), ARCHS).axes[0].images[0]
    assert np.asarray(image.get_array()).tolist() == [[100, 0], [25, 0]]


def test_bandwidth_stacks_reads_and_writes_below_the_peak() -> None:
    axes = plots.bandwidth_figure(levels(), ARCHS).axes[0]
    reads, writes = (patch.get_data() for patch in axes.patches)
    assert (list(reads.values), list(writes.values)) == ([8, 4], [10, 4])
    assert axes.get_lines()[0].get_ydata()[0] == EDGE.dram_bytes_per_cycle
    assert "mean 7 of 16" in axes.get_title("left")


def test_figures_of_a_point_refuse_several() -> None:
    both = pd.concat([levels(), levels().assign(model="other")])
    for draw in (plots.occupancy_figure, plots.banks_figure, plots.bandwidth_figure):
        with pytest.raises(ValueError, match="2 points"):
            draw(both, ARCHS)
    with pytest.raises(ValueError, match="0 points"):
        plots.gantt_figure(spans().iloc[:0], ARCHS)


def test_details_are_drawn_for_every_point_of_every_frame() -> None:
    both = pd.concat([levels(), levels().assign(model="zoo/other.onnx", effort=3)])
    names = [name for name, _ in detail_figures(ARCHS, layers(), spans(), both)]
    usual, other = "soma-edge-net-b1-int8", "soma-edge-other-b1-int8-effort=3"
    assert sorted(names) == sorted(
        [f"{usual}/layers", f"{usual}/engines"]
        + [
            f"{at}/{name}"
            for at in (usual, other)
            for name in ("memory_time", "banks", "bandwidth")
        ]
    )


def test_files_have_the_format_asked_for(tmp_path: Path) -> None:
    frame = results({"status": "does_not_fit"})
    frame["latency_ms"] = frame["dram_read_bytes"] = math.nan
    names = [name for name, _ in overview_figures(frame, ARCHS)]
    assert set(names) <= set(OVERVIEWS)  # which `archgen explain plots` tells
    assert names == ["latency", "throughput", "memory", "stalls", "roofline"]
    inside = detail_figures(ARCHS, levels=levels())
    paths = plots.save_figures([*overview_figures(frame, ARCHS), *inside], tmp_path, "svg")
    assert (tmp_path / "soma-edge-net-b1-int8" / "bandwidth.svg") in paths
    page = '<g id="patch_1">\n   <path d="[^"]*" style="fill: #ffffff"'
    assert all(re.search(page, path.read_text()) for path in paths), "dark ink on white"


def test_pictures_of_an_earlier_shape_go_and_others_stay(tmp_path: Path) -> None:
    def draw(*names: str) -> list[Path]:
        for name in names:
            (tmp_path / name).write_text(f"drawn as {name}")
        return keep_only(tmp_path, [tmp_path / name for name in names])

    (tmp_path / "mine.png").write_text("a photograph")
    assert draw("latency.png", "sweep_size.png", "map_a_b.png", "gone.png") == []
    (tmp_path / "map_a_b.png").write_text("with an arrow that somebody has drawn in")
    (tmp_path / "gone.png").unlink()
    assert draw("latency.png", "stalls.png") == [tmp_path / "sweep_size.png"]
    left = {path.name for path in tmp_path.iterdir()} - {DRAWN}
    assert left == {"mine.png", "latency.png", "stalls.png", "map_a_b.png"}
    (tmp_path / "pareto.png").write_text("of a search in the same folder")
    assert keep_only(tmp_path, [tmp_path / "pareto.png"], EXPLORE) == []
    assert draw("latency.png") == [tmp_path / "stalls.png"]
    assert keep_only(tmp_path, [], EXPLORE) == [tmp_path / "pareto.png"]
    (tmp_path / DRAWN).write_text("{}")
    with pytest.warns(DamagedFile, match="not used"):
        assert draw("latency.png") == []


def test_names_have_the_outline_of_the_page() -> None:
    ends = {"a": (1, 2), "b": (2, 1)}
    rows: list[Row] = [{"arch": n, "latency_ms": x, "area_mm2": y} for n, (x, y) in ends.items()]
    assert "stroke: var(--figure-paper" in plots.as_svg(plots.pareto_figure(results(*rows)))


def test_one_machine_is_not_best_of_itself() -> None:
    rows: list[Row] = [{"model": name, "latency_ms": n} for n, name in enumerate("ab", 1)]
    assert plots.latency_figure(results(*rows)).get_suptitle() == "Latency: 1 to 2 ms"


def test_svg_fits_into_any_page() -> None:
    one, other = (
        plots.as_svg(
            plots.tornado_figure(pd.DataFrame([{"parameter": "a & b", "low": low, "high": 0.2}]))
        )
        for low in (0.1, 0.3)
    )
    ElementTree.fromstring(one)
    assert "a &amp; b</text>" in one, "text stays text"
    assert "currentColor" in one
    assert "#222222" not in one.lower()
    assert 'aria-label="Sensitivity' in one
    assert "<style" not in one, "a page is not styled by its figures"
    ids = [set(re.findall(r'\bid="([^"]+)"', text)) for text in (one, other)]
    assert not ids[0] & ids[1]
    assert set(re.findall(r"url\(#([^)]+)\)", one)) <= ids[0]


def seen(colour: str, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """CIE Lab of what an eye with `matrix` (on linear light) sees."""
    light = np.array([c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
                      for c in to_rgb(colour)])  # fmt: skip
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(np.clip(xyz @ (matrix @ light), 1e-6, None) / [0.9505, 1.0, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


EYES = {
    "protanope": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranope": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "grey print": [[0.2126, 0.7152, 0.0722]] * 3,
}
"""Full dichromacy (Machado, Oliveira and Fernandes, 2009), and a print without colours."""


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize(
    "palette", [CAUSES, MEMORIES, COMPONENTS, WORK], ids=["cause", "memory", "part", "work"]
)
def test_colours_differ_for_every_eye(eye: str, palette: dict[str, str]) -> None:
    for one, other in combinations(dict.fromkeys(palette.values()), 2):
        if HATCHES.get(one) == HATCHES.get(other):
            matrix = np.array(EYES[eye])
            distance = np.linalg.norm(seen(one, matrix) - seen(other, matrix))
            assert distance > 8, f"{one} and {other}"


@pytest.mark.parametrize(
    ("times", "networks", "title"),
    [
        ([1.0, 1.23], 1, "Latency: a takes least, b 23 % more"),
        ([3.0, 1.0], 1, "Latency: b takes least, a 3 times as much"),
        ([2.0, 2.0], 1, "Latency: a and b, 2 ms"),
        ([2.0], 1, "Latency: 2 ms"),
        ([2.0, 1.0], 3, "Latency: b takes least for 3 of 3 networks"),
    ],
)
def test_titles_say_who_is_best_and_by_how_much(
    times: list[float], networks: int, title: str
) -> None:
    own = ({"arch": n, "latency_ms": t, "of_bound": 0.5} for n, t in zip("ab", times, strict=False))
    rows = [row | {"model": f"net{number}"} for row in own for number in range(networks)]
    assert " ".join(plots.latency_figure(results(*rows)).get_suptitle().split()) == title


def test_titles_say_what_takes_most_and_what_holds() -> None:
    costs: Row = {"energy_mj": 4.0, "energy_dram_mj": 3.0, "energy_mac_mj": 1.0}
    spent: list[Row] = [costs | {"arch": "a"}, costs | {"arch": "b", "energy_mj": 8.0}]
    energy = plots.energy_figure(results(*spent)).get_suptitle()
    assert " ".join(energy.split()) == (
        "Energy: a takes least, b 2 times as much; DRAM is 75 % of all"
    )
    held: list[Row] = [{"arch": n, "held_by": by, "bound_by": by, "of_bound": 0.9}
            for n, by in zip("ab", ("bandwidth", "matrix"), strict=True)]  # fmt: skip
    assert " ".join(plots.waterfall_figure(results(*held)).get_suptitle().split()) == (
        "What holds points up: a by DRAM bandwidth, b by matrix engines"
    )
    # One machine on two networks: these have the names.
    held = [row | {"arch": "a", "model": f"net{row['arch']}", "latency_ms": 1.0} for row in held]
    assert " ".join(plots.waterfall_figure(results(*held)).get_suptitle().split()) == (
        "What holds points up: neta by DRAM bandwidth, netb by matrix engines"
    )
    assert plots.latency_figure(results(*held)).get_suptitle() == "Latency: 1 ms"


def test_numbers_of_one_machine_fit_into_its_bars() -> None:
    """A legend of many lines took their height from them."""
    parts = ("work_padding", "stall_data", "stall_fill", "moved_compulsory", "moved_idle")
    figure = with_final_layout(plots.waterfall_figure(results(dict.fromkeys(parts, 0.5))), 100)
    (axes,) = figure.axes
    bar = axes.patches[0].get_window_extent().height
    assert axes.texts and all(bar > text.get_window_extent().height for text in axes.texts)


def test_titles_keep_settings_apart_from_what_they_reach() -> None:
    for names, said in (
        (("edge", "cloud"), "edge 59 % busy, cloud 10 %"),
        (("cores 1", "cores 3"), "59 % busy (cores 1), 10 % (cores 3)"),
    ):
        points = list(zip(names, ({"busy": 59.0}, {"busy": 10.0}), strict=True))
        assert extremes(points, lambda row: float(row["busy"]), " %", "{} busy") == said
