"""Which figures a study has, and their files.

The one idea: figures are named and made one after the other, and a figure whose columns a study
does not have, or that would say nothing, is left out. A report takes the same figures from here.
Of estimates there are those that compare points, and their titles say so; what happens within a run
is drawn of runs alone.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

import archgen.plots.bars as bars
import archgen.plots.over_time as over_time
from archgen.outcomes.axes import FAMILY, MACHINE, axes, workload
from archgen.outcomes.estimated import comparable, has_figures, is_estimated, ranked_by, simulated
from archgen.outcomes.frame import Frame, records
from archgen.outcomes.points import DIMENSION
from archgen.plots.gantt import gantt_figure, utilization_figure
from archgen.plots.pareto import pareto_figure
from archgen.plots.roofline import roofline_figure
from archgen.plots.style import NO_DATE, SALT, title, with_final_layout
from archgen.plots.sweeps import map_columns, map_figure, sweep_columns, sweep_figure
from archgen.process.files import read_sealed, write_atomically, write_sealed
from archgen.scheduling import DEFAULT
from simmodel.arch.record import Arch

_DPI = 130
_MOST_PANELS = 12
"""Machines with a panel each."""
MOST_ROWS = 32
"""Most points in figures with a row for each."""
OVERVIEWS: Mapping[str, Callable[..., Figure]] = {
    "sweep_<column>": sweep_figure,
    "map_<column>_<column>": map_figure,
    "latency": bars.latency_figure,
    "throughput": bars.throughput_figure,
    "roofline": roofline_figure,
    "memory": bars.memory_figure,
    "stalls": bars.stalls_figure,
    "waterfall": bars.waterfall_figure,
    "energy": bars.energy_figure,
    "area": bars.area_figure,
    "pareto_area": pareto_figure,
    "pareto_energy": pareto_figure,
    "tornado": bars.tornado_figure,
}
"""Name -> function of every figure that compares points."""
DETAILS: Mapping[str, Callable[[Frame, Mapping[str, Arch]], Figure]] = {
    "layers": utilization_figure,
    "engines": gantt_figure,
    "memory_time": over_time.occupancy_figure,
    "banks": over_time.banks_figure,
    "bandwidth": over_time.bandwidth_figure,
}
"""Name -> function of every figure of what happened within one point."""
Archs = Mapping[str, Arch]
Named = Iterator[tuple[str, Figure]]


def overview_figures(frame: Frame, archs: Archs) -> Named:
    """Name and figure of everything that compares points, as far as the frames say it: lines and
    maps over what was swept; figures with a row or a panel for each point or machine, of many
    points the quickest; and those of which each point is a mark. Their layout is found, once for
    all formats that they are written in."""
    for name, figure in _overviews(frame, archs):
        yield name, with_final_layout(figure, _DPI)


def _overviews(frame: Frame, archs: Archs) -> Named:
    compared, ran = comparable(frame), simulated(frame)
    mark = ": estimated" if is_estimated(frame) else ""
    yield from _extended(_sweep_figures(compared, archs), mark)
    for every, figures in ((compared, _compared_rows), (ran, _run_rows)):
        drawn = quickest(every)
        count, known = (sum(map(has_figures, records(own))) for own in (drawn, every))
        noun = " estimates" if is_estimated(every) else ""
        words = f": the {count} quickest of {known}{noun}" if count < known else ""
        yield from _extended(figures(drawn, archs), words)
    if not ran.empty:
        families = ran[FAMILY].fillna(ran[MACHINE]) if FAMILY in ran else ran[MACHINE]
        few = families.nunique() <= _MOST_PANELS
        yield "roofline", roofline_figure(ran if few else quickest(ran), archs)
    yield from _extended(_pareto_figures(compared, archs), mark)


def _extended(figures: Named, words: str) -> Named:
    """`figures` with `words` behind their titles."""
    for name, figure in figures:
        if words:
            title(figure, f"{' '.join(figure.get_suptitle().split())}{words}")
        yield name, figure


def quickest(frame: Frame) -> Frame:
    """As many points as a figure has rows for: of many those that are quickest among the points of
    their network, of equals those that ran, in the order of the study."""
    if len(frame) <= MOST_ROWS:
        return frame
    ordered = ranked_by(frame, "latency_ms")
    place = ordered.groupby([workload(row) for row in records(ordered)]).cumcount()
    return frame[frame.index.isin(place.sort_values(kind="stable").index[:MOST_ROWS])]


def _sweep_figures(frame: Frame, archs: Archs) -> Named:
    names = {
        axis.column: re.sub(r"[^A-Za-z0-9_.=-]+", "-", axis.label) for axis in axes(frame, archs)
    }
    for column in sweep_columns(frame, archs):
        yield f"sweep_{names[column]}", sweep_figure(frame, archs, column)
    for pair in map_columns(frame, archs):
        yield f"map_{names[pair[0]]}_{names[pair[1]]}", map_figure(frame, archs, pair)


def _compared_rows(frame: Frame, archs: Archs) -> Named:
    """Figures that estimates have too."""
    named = {axis.column for axis in axes(frame, archs) if not axis.ordered}
    # Where all that differs has an order, lines say more than bars.
    if not sweep_columns(frame, archs) or named & {MACHINE, FAMILY}:
        drawn = ((name, OVERVIEWS[name](frame, archs)) for name in ("latency", "throughput"))
        yield from _extended(drawn, ": estimated" if is_estimated(frame) else "")
    if _has_values(frame, "area_mm2"):
        yield "area", bars.area_figure(frame, archs)


def _run_rows(frame: Frame, archs: Archs) -> Named:
    """Figures of what happened in runs, as far as there are columns for them."""
    needed = {"memory": "arch", "stalls": "arch", "waterfall": "of_bound", "energy": "energy_mj"}
    for name, column in needed.items():
        if _has_values(frame, column):
            yield name, OVERVIEWS[name](frame, archs)


def _pareto_figures(frame: Frame, archs: Archs) -> Named:
    loads = [workload(row) for row in records(frame) if has_figures(row)]
    for name, against in (("pareto_area", "area_mm2"), ("pareto_energy", "energy_mj")):
        if _has_values(frame, against) and len(set(loads)) < len(loads):
            yield name, pareto_figure(frame, "latency_ms", against, archs=archs)


def detail_figures(
    archs: Archs, layers: Frame | None = None, spans: Frame | None = None,
    levels: Frame | None = None,
) -> Named:  # fmt: skip
    """Name and figure of everything within one point, for each point of the frames given.

    Names are those of `DETAILS` after a folder for the point: `edge-resnet50-b1-int8/engines`.
    """
    drawn_from = {"layers": layers, "engines": spans}
    for name, draw in DETAILS.items():
        frame = drawn_from.get(name, levels)
        for own in over_time.split_points(frame) if frame is not None else []:
            if draw is not over_time.banks_figure or over_time.has_banks(own):
                yield f"{point_folder(own)}/{name}", draw(own, archs)


def point_folder(frame: Frame) -> str:
    """`edge-resnet50-b1-int8`, and everything else that tells the point of `frame` from others."""
    values = {name: str(frame[name].iloc[0]) for name in over_time.point_columns(frame)}
    head = [values.pop(name, "") for name in ("arch", "model", "batch", "dtype")]
    head[1] = head[1].rsplit("/", 1)[-1].removesuffix(".onnx")
    head[2] = f"b{head[2]}"
    usual = {name: str(value) for name, value in DEFAULT.columns.items()}
    values = {n: value for n, value in values.items() if value not in (usual.get(n), str(pd.NA))}
    rest = []
    for name, value in values.items():
        dimension = name.startswith(DIMENSION)
        short = name.removeprefix(DIMENSION) if dimension else name.rpartition(".")[2]
        rest.append(f"{short}={value}")
    return re.sub(r"[^A-Za-z0-9_.=-]+", "-", "-".join([*head, *rest]))


def save_figures(
    figures: Iterable[tuple[str, Figure]], folder: Path, suffix: str = "png"
) -> list[Path]:
    """Write `figures` by name into `folder`, in a format of matplotlib, the same bytes every time;
    gives the files."""
    paths: list[Path] = []
    how: Any = {"format": suffix, "dpi": _DPI, "metadata": NO_DATE.get(suffix)}
    for name, figure in figures:
        paths.append(path := folder / f"{name}.{suffix}")
        with rc_context(SALT):
            write_atomically(path, partial(figure.savefig, **how))
    return paths


def _has_values(frame: Frame, column: str) -> bool:
    return column in frame and bool(frame[column].notna().any())


# Pictures of an earlier shape of a study, taken away when it is drawn anew.

DRAWN = "plots.json"
"""In the folder of a study: the pictures that archgen has drawn there, with their SHA-256."""
STUDY, EXPLORE = "pictures", "explore"
"""Who has drawn them: a study may stand in the folder of a search, and each keeps its own."""


def keep_only(folder: Path, made: Iterable[Path], whose: str = STUDY) -> list[Path]:
    """Remove what was drawn into `folder` before, by the same verb, and is not among `made`; gives
    what went. A list of that which cannot be trusted lists nothing."""
    now = {path.name: _digest(path) for path in made}
    drawn = json.loads(read_sealed(folder / DRAWN) or "{}")
    stale = [
        folder / name
        for name, digest in drawn.get(whose, {}).items()
        if name not in now and _digest(folder / name) == digest
    ]
    for path in stale:
        path.unlink(missing_ok=True)
    write_sealed(folder / DRAWN, json.dumps(drawn | {whose: now}, indent=1).encode())
    return stale


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
