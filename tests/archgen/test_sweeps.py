"""Sweeps as lines, maps and matrices: what is drawn is what the points say, and names are apart."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import combinations, product

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from archgen.outcomes.columns import COLUMNS
from archgen.outcomes.estimated import comparable
from archgen.outcomes.frame import Frame, typed_frame
from archgen.outcomes.points import Row
from archgen.plots import map_figure, pareto_figure, roofline_figure, stalls_figure, sweep_figure
from archgen.plots.saving import overview_figures
from archgen.plots.style import logarithmic, wrapped
from archgen.plots.sweeps import map_columns, sweep_columns
from archgen.schema import load_arch
from archgen.schema.rewritten import changed
from simmodel.arch.record import Arch
from simmodel.arch.units import Bandwidth

EDGE = load_arch("soma-edge")
SIZE, RATE, LANES = "arch.memories.local.size", "arch.memories.dram.bandwidth", "arch.vector.lanes"
KIB = 1024


def machine(size: int, rate: float, lanes: int) -> Arch:
    fields = {"memories.local.size": size * KIB, "memories.dram.bandwidth": f"{rate} GB/s"}
    made = changed(EDGE, {**fields, "vector.lanes": lanes})
    assert made is not None
    return made.model_copy(update={"name": f"edge-{size}-{rate:g}-{lanes}"})


def row(arch: Arch, model: str, latency: float) -> Row:
    assert isinstance(arch.memories.dram.bandwidth, Bandwidth)
    return {
        "arch": arch.name, "family": "edge", "model": model, "batch": 1, "dtype": "int8",
        SIZE: arch.memories.local.size, RATE: arch.memories.dram.bandwidth.amount,
        LANES: arch.vector.lanes, "status": "ok", "latency_ms": latency, "latency_cycles": 1000,
        "throughput_ips": 1000 / latency, "energy_mj": latency / 2, "macs": 10**8,
        "area_mm2": arch.memories.local.size / KIB / 100 + arch.vector.lanes / 64,
        "dram_read_bytes": 10**6, "dram_write_bytes": 10**5, "matrix_utilization": 0.1,
        "peak_local_bytes": min(arch.memories.local.size, 200 * KIB),
    }  # fmt: skip


def study(
    sizes: list[int], rates: list[float], lanes: list[int], models: tuple[str, ...] = ("net",)
) -> tuple[Frame, Mapping[str, Arch]]:
    """A grid whose latency falls with the memory up to 256 KiB, and with the bandwidth."""
    machines = [machine(*each) for each in product(sizes, rates, lanes)]
    rows = [
        row(arch, model, 8 * (n + 1) * max(1, 256 * KIB / arch.memories.local.size) ** 0.5
            * 4e9 / arch.memories.dram.bandwidth.amount)
        for n, model in enumerate(models)
        for arch in machines
    ]  # fmt: skip
    return typed_frame(rows, COLUMNS), {arch.name: arch for arch in machines}


SIZES = [64, 128, 256, 512]


def curves(panel: Axes) -> list[tuple[list[float], list[float]]]:
    drawn = [line for line in panel.get_lines() if line.get_linestyle() == "-"]
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in drawn]


def rings(panel: Axes) -> list[tuple[float, float]]:
    drawn = [line for line in panel.get_lines() if line.get_markersize() == 11]
    return [(line.get_xdata()[0], line.get_ydata()[0]) for line in drawn]


def test_one_field_is_a_line_over_its_values_with_the_knee() -> None:
    frame, archs = study(SIZES, [4.0], [16])
    assert sweep_columns(frame, archs) == [SIZE]
    figure = sweep_figure(frame, archs, SIZE)
    panels = {panel.get_title("left"): panel for panel in figure.axes if panel.axison}
    # 8 ms x sqrt(256 / size), and no quicker beyond 256 KiB.
    ((xs, ys),) = curves(panels["latency [ms]"])
    assert xs == [64, 128, 256, 512]
    assert ys == pytest.approx([16, 8 * math.sqrt(2), 8, 8])
    assert panels["latency [ms]"].get_xscale() == "log"
    assert panels["latency [ms]"].get_xlabel() == "local.size [KiB]"
    assert rings(panels["latency [ms]"]) == [(256, 8)]
    assert rings(panels["area [mm²]"]) == []
    ((_, alive),) = curves(panels["local memory alive at once [KiB]"])
    assert alive == [64, 128, 200, 200]


def test_networks_are_lines_of_one_setting() -> None:
    frame, archs = study(SIZES, [4.0, 8.0], [16], ("a", "b"))
    figure = sweep_figure(frame, archs, SIZE)
    assert figure.get_suptitle() == (
        "local.size 64 KiB to 512 KiB: 50 % less time, the least with 256 KiB at dram.bandwidth "
        "8 GB/s"
    )
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert said[:2] == ["a", "b"] and "2 more lines not drawn" in said
    with pytest.raises(KeyError, match="no swept column"):
        sweep_figure(frame, archs, LANES)


def test_a_point_without_a_result_is_a_cross_and_no_part_of_the_line() -> None:
    frame, archs = study(SIZES, [4.0], [16])
    frame.loc[0, ["status", "latency_ms"]] = ["does_not_fit", math.nan]
    panel = sweep_figure(frame, archs, SIZE).axes[0]
    assert curves(panel)[0][0] == [128, 256, 512]
    assert [list(line.get_xdata()) for line in panel.get_lines() if line.get_marker() == "x"] == [
        [64]
    ]


def test_a_line_is_dashed_across_what_a_search_left_out_and_has_no_knee() -> None:
    frame, archs = study([64, 128, 256, 512, 1024], [4.0, 8.0], [16])
    left_out = (frame[RATE] == 4e9) & (frame[SIZE] == 128 * KIB)
    figure = sweep_figure(frame[~left_out], archs, SIZE)
    panel = figure.axes[0]
    assert sorted(xs for xs, _ in curves(panel)) == [
        [64], [64, 128, 256, 512, 1024], [256, 512, 1024],
    ]  # fmt: skip
    (gap,) = [line for line in panel.get_lines() if line.get_linestyle() == "--"]
    assert list(gap.get_xdata()) == [64, 256]
    # 8 GB/s was run at every size: 4 ms from 256 KiB on. What 4 GB/s does at 128 KiB is not known.
    assert rings(panel) == [(256, 4)]
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "nothing run between" in said


def delayed(latencies: dict[float, float], field: str) -> tuple[Frame, Mapping[str, Arch]]:
    """A machine with each value of `field`, and the milliseconds that it takes."""
    made = [
        machine(256, 4.0, 16).model_copy(update={"name": f"after{value:g}"}) for value in latencies
    ]
    rows = [
        row(arch, "net", took) | {f"arch.{field}": value}
        for arch, (value, took) in zip(made, latencies.items(), strict=True)
    ]
    return typed_frame(rows, COLUMNS), {arch.name: arch for arch in made}


@pytest.mark.parametrize("field", ["memories.dram.latency", "matrix.startup", "vector.cost.exp"])
def test_of_a_delay_the_longest_that_costs_nothing_is_the_knee(field: str) -> None:
    """Up to 40 nothing shorter is better by more than 5 %; what is worse at once has none."""
    frame, archs = delayed({10: 8.0, 20: 8.1, 40: 8.2, 80: 9.0, 160: 12.0}, field)
    figure = sweep_figure(frame, archs, f"arch.{field}")
    ((place, took),) = rings(figure.axes[0])
    assert (took, rings(figure.axes[1])[0][1]) == (8.2, pytest.approx(1000 / 8.2))
    assert place == sorted(figure.axes[0].get_lines()[0].get_xdata())[2]
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "knee: nothing shorter is better by more than 5 %" in said
    frame, archs = delayed({10: 8.0, 20: 9.0, 40: 10.0}, field)
    assert rings(sweep_figure(frame, archs, f"arch.{field}").axes[0]) == []


def test_a_line_that_ends_before_its_axis_has_no_knee() -> None:
    """At 4 GB/s a search has not run 512 KiB: nobody knows whether 256 KiB are enough there."""
    frame, archs = study([64, 128, 256, 512], [4.0, 8.0], [16])
    frame = frame.assign(latency_ms=frame["latency_ms"].clip(lower=6))
    kept = frame[(frame[RATE] != 4e9) | (frame[SIZE] != 512 * KIB)]
    assert [y for _, y in rings(sweep_figure(frame, archs, SIZE).axes[0])] == [8, 6]
    assert [y for _, y in rings(sweep_figure(kept, archs, SIZE).axes[0])] == [6]


def test_two_fields_are_a_map_with_numbers() -> None:
    frame, archs = study(SIZES, [2.0, 4.0, 8.0], [16])
    assert map_columns(frame, archs) == [(SIZE, RATE)]
    figure = map_figure(frame, archs, (SIZE, RATE))
    latency = figure.axes[0]
    (shades,) = latency.get_images()
    assert shades.get_array().shape == (3, 4)
    assert shades.get_array()[0].tolist() == pytest.approx([32, 16 * math.sqrt(2), 16, 16])
    assert [tick.get_text() for tick in latency.get_xticklabels()] == ["64", "128", "256", "512"]
    assert latency.get_title("left").splitlines()[1] == "4 to 32, 8 times apart"
    texts = [text.get_text() for text in latency.texts]
    assert texts.count("16") == 3
    assert len(texts) == 12
    title = map_figure(frame.drop(index=[0]), archs, (SIZE, RATE)).axes[0].get_title("left")
    assert "grey: no result" in title and "grey" not in latency.get_title("left")


def test_a_map_of_several_networks_says_how_far_their_cells_are_apart() -> None:
    frame, archs = study([256, 12288], [2.0, 4.0, 8.0], [16])
    slower = frame.assign(model="other", latency_ms=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    figure = map_figure(pd.concat([frame, slower], ignore_index=True), archs, (SIZE, RATE))
    first = frame["latency_ms"].max() / frame["latency_ms"].min()
    assert f": latency {first:.3g} to 6 times apart" in " ".join(figure.get_suptitle().split())
    ticks = sweep_figure(frame, archs, SIZE).axes[0].get_xticklabels()
    assert [tick.get_text() for tick in ticks] == ["256", "12288"]


def test_numbers_of_runs_stand_clear_of_the_others() -> None:
    frame, archs = study([32 * 2**n for n in range(8)], [2.0 + n for n in range(8)], [16])
    frame = frame.assign(estimated_ms=frame["latency_ms"], latency_ms=frame["latency_ms"] * 1.1)
    frame.loc[3, ["status", "estimated_ms", "latency_ms"]] = ["estimated", pd.NA, 20.0]
    figure = map_figure(comparable(frame), archs, (SIZE, RATE))
    figure.draw_without_rendering()
    texts = figure.axes[0].texts
    assert sum("\nrun " in text.get_text() for text in texts) == 63
    boxes = [text.get_window_extent() for text in texts]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_fields_with_an_order_have_lines_and_maps_and_no_bars() -> None:
    frame, archs = study(SIZES, [2.0, 4.0], [8, 16])
    names = [name for name, _ in overview_figures(frame, archs)]
    assert names[:3] == ["sweep_local.size", "map_local.size_dram.bandwidth",
                         "map_local.size_vector.lanes"]  # fmt: skip
    assert "latency" not in names  # bars are for machines without an order


def test_long_names_of_fields_are_folded_where_they_stand_side_by_side() -> None:
    frame, archs = study(SIZES, [2.0, 4.0], [8, 16])
    figure = sweep_figure(frame.rename(columns={SIZE: "arch.front_end.queue_depth.matrix"}), archs,
                          "arch.front_end.queue_depth.matrix")  # fmt: skip
    figure.draw_without_rendering()
    words = [panel.xaxis.label for panel in figure.axes if panel.axison]
    words += [panel._left_title for panel in figure.axes]  # type: ignore[attr-defined]
    boxes = [word.get_window_extent() for word in words if word.get_text()]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert max(box.x1 for box in boxes) <= figure.bbox.x1


def test_machines_of_a_family_share_a_roofline() -> None:
    frame, archs = study(SIZES, [2.0, 4.0], [16])
    (panel,) = roofline_figure(frame, archs).axes
    assert panel.get_title("left") == "edge: 8 machines"
    roofs = [line for line in panel.get_lines() if line.get_color() == "#222222"]
    assert len(roofs) == 2  # one for each bandwidth
    (marks,) = (line for line in panel.get_lines() if line.get_marker() == "o")
    assert len(marks.get_xdata()) == 8


def test_roofs_and_points_of_a_family_have_names() -> None:
    frame, archs = study([256, 512], [2.0, 4.0], [16])
    figure = roofline_figure(frame, archs)
    figure.draw_without_rendering()
    notes = [text.get_text() for text in figure.axes[0].texts]
    assert {"2 GB/s", "4 GB/s", "8,192 int8"} <= set(notes)
    # The quickest and the slowest; memory beyond 256 KiB brings nothing, so two points are one.
    assert {"256, 4", "512, 2"} <= set(notes)
    said = figure.legends[0].get_title().get_text()
    assert said == "names: local.size [KiB], dram.bandwidth [GB/s]"


def test_schedules_of_one_machine_have_names_that_cover_no_legend() -> None:
    for several in (False, True):
        names = ("edge", "other") if several else ("edge",)
        own = {name: EDGE.model_copy(update={"name": name}) for name in names}
        ways = {"none": 8.0, "line": 4.0}
        rows = [
            {**row(arch, "net", ms), "family": arch.name, "fusion": way, "matrix_busy": 0.1}
            for arch, (way, ms) in product(own.values(), ways.items())
        ]
        frame = typed_frame([{**each, "stall_data": 0.9} for each in rows], COLUMNS)
        figure = roofline_figure(frame, own)
        for panel in figure.axes:
            assert ways.keys() <= {text.get_text() for text in panel.texts}
        figure = stalls_figure(frame, own)
        figure.draw_without_rendering()
        said = figure.axes[0].yaxis.label
        assert said.get_text() == ("" if several else "names: fusion")
        assert not said.get_window_extent().overlaps(figure.legends[0].get_window_extent())


def test_the_ends_of_roofs_have_names_that_cover_no_mark_and_no_name() -> None:
    """Four peaks and four bandwidths, and many near ones."""
    machines = [
        machine(256, rate, 16).model_copy(update={"name": f"edge-{cores}-{rate}", "cores": cores})
        for cores, rate in product((1, 2, 4, 8), (2.0, 4.0, 8.0, 16.0))
    ]
    near = [machine(256, 4 + n / 40, 16) for n in range(16)]
    for own, wanted in (
        (machines, {"8,192 int8", "65,536 int8", "2 GB/s", "16 GB/s"}),
        (near, {"8,192 int8", "4 GB/s", "4.375 GB/s"}),
    ):  # fmt: skip
        rows = [row(arch, "net", 8 / (1 + n)) for n, arch in enumerate(own)]
        # Below the slopes, some of them where names stand if they may.
        rows = [each | {"dram_read_bytes": 10**7 * (1 + n)} for n, each in enumerate(rows)]
        figure = roofline_figure(typed_frame(rows, COLUMNS), {arch.name: arch for arch in own})
        figure.draw_without_rendering()
        panel = figure.axes[0]
        roofs = [text for text in panel.texts if text.get_text().endswith(("int8", "GB/s"))]
        assert {text.get_text() for text in roofs} == wanted
        boxes = [text.get_window_extent() for text in roofs if not text.get_rotation()]
        notes = [note for note in panel.texts if note.get_text() and note not in roofs]
        boxes += [note.get_window_extent() for note in notes]
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
        inner = panel.get_window_extent().padded(1)
        assert all(inner.contains(*box.p0) and inner.contains(*box.p1) for box in boxes)


def test_numbers_of_axes_stand_apart_also_in_small_panels() -> None:
    own = {f"m{n}": machine(256, 4.0, 16).model_copy(update={"name": f"m{n}"}) for n in range(9)}
    rows = [row(arch, "net", 8.0) | {"family": arch.name} for arch in own.values()]
    rows[0] |= {"dram_read_bytes": 10**7}
    figure = roofline_figure(typed_frame(rows, COLUMNS), own)
    figure.draw_without_rendering()
    for panel in [panel for panel in figure.axes if panel.axison][-4:]:
        low, high = panel.get_xlim()
        ticks = [tick for tick in panel.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
        boxes = [tick.label1.get_window_extent() for tick in ticks]
        assert panel.get_xlabel() and min(box.width for box in boxes) > 1, "nothing is below"
        assert len(boxes) > 1
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_a_roofline_shows_every_point_of_a_family() -> None:
    frame, archs = study(SIZES, [1.0 + n for n in range(10)], [16])
    figures = dict(overview_figures(frame, archs))
    assert figures["roofline"].axes[0].get_title("left") == "edge: 40 machines"
    assert "quickest" not in figures["roofline"].get_suptitle()


@given(st.text("ab-_ /,", max_size=60), st.integers(3, 12))
def test_folded_names_keep_their_letters_and_their_width(text: str, letters: int) -> None:
    made = wrapped(text, letters)
    assert all(len(line) <= letters for line in made.splitlines())
    assert re.sub(r"\s", "", made) == re.sub(r"\s", "", text)


def test_long_names_are_broken_where_words_end() -> None:
    assert wrapped("a-rather-long_name, sequence 128", 12) == "a-rather-\nlong_name,\nsequence 128"


@pytest.mark.parametrize(
    ("ends", "numbers"),
    [
        ((3, 150), ["10", "100"]),
        ((0.2, 4), ["0.2", "0.5", "1", "2"]),
        ((50, 2e6), ["100", "1,000", "10,000", "100,000", "1,000,000"]),
    ],
)
def test_axes_over_factors_are_numbered_as_people_write(
    ends: tuple[float, float], numbers: list[str]
) -> None:
    panel = Figure().subplots()
    logarithmic(panel, "x")
    panel.set_xlim(ends)
    low, high = ends
    shown = [tick for tick in panel.get_xticks() if low <= tick * (1 + 1e-9) and tick <= high]
    assert panel.xaxis.get_major_formatter().format_ticks(shown) == numbers


# Names of the points of a front in its picture: all of them, apart, and numbers where crowded.


def names_of(figure: Figure) -> list[Annotation]:
    notes = [text for text in figure.axes[0].texts if isinstance(text, Annotation)]
    return [note for note in notes if note.get_text() and "result" not in note.get_text()]


def test_every_point_of_the_front_has_a_name_and_names_do_not_overlap() -> None:
    frame, archs = study([64, 96, 128, 192, 256], [3.9, 4.0, 4.1, 4.2], [16, 17])
    figure = pareto_figure(frame, archs=archs)
    figure.draw_without_rendering()
    notes = names_of(figure)
    names = {note.get_text() for note in notes}
    assert names == {"64, 4.2, 16", "96, 4.2, 16", "128, 4.2, 16", "192, 4.2, 16", "256, 4.2, 16"}
    boxes = [note.get_window_extent() for note in notes]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_names_of_a_crowded_front_are_numbers_with_a_key() -> None:
    """Twenty machines, the quickest first, in their panel and apart."""
    sizes = [32 * n for n in range(1, 21)]
    frame, archs = study(sizes, [4.0, 4.001], [16])
    figure = pareto_figure(frame.assign(latency_ms=8 - frame[SIZE] / 1e9), archs=archs)
    figure.draw_without_rendering()
    inner = figure.axes[0].get_window_extent().padded(5)
    notes = names_of(figure)
    assert [note.get_text() for note in notes] == [str(n) for n in range(1, 21)]
    boxes = [note.get_window_extent() for note in notes]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert all(inner.contains(box.x0, box.y0) and inner.contains(box.x1, box.y1) for box in boxes)
    key = [text.get_text() for text in figure.legends[0].get_texts()]
    assert key[:3] == ["Pareto front", "dominated", "1  640, 4 and 1 equal"]
