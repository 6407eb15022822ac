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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from archgen.outcomes.axes import FAMILY, MACHINE, StudyAxis, axes, deviating_axes, workload
from archgen.outcomes.estimated import (
    by_merit,
    has_figures,
    is_estimated,
    like_with_like,
    runs,
)
from archgen.outcomes.frame import Frame, Record, records
from archgen.outcomes.points import DIMENSION
from archgen.plots.bars import latency_figure, throughput_figure
from archgen.plots.gantt import gantt_figure, utilization_figure
from archgen.plots.group_roofline import group_roofline_figure
from archgen.plots.maps import map_columns, map_figure
from archgen.plots.memory import memory_figure
from archgen.plots.over_time import (
    bandwidth_figure,
    banks_figure,
    has_banks,
    identity,
    occupancy_figure,
    split_points,
)
from archgen.plots.pareto import pareto_figure
from archgen.plots.roofline import roofline_figure
from archgen.plots.scaling import scaling_figure, scaling_lines
from archgen.plots.stacked import area_figure, energy_figure, stalls_figure, waterfall_figure
from archgen.plots.style import svg_text, title
from archgen.plots.sweep_lines import sweep_columns, sweep_figure
from archgen.plots.sweep_scatter import parallel_figure, scatter_figure
from archgen.plots.tornado import tornado_figure
from archgen.process.files import read_sealed, write_atomically, write_sealed, write_text
from archgen.scheduling import DEFAULT
from simmodel.arch.record import Arch

FORMATS = ("png", "svg", "pdf")
_DPI = 130
_NO_DATE = {"pdf": {"CreationDate": None}}
_SEVERAL, _MOST_PANELS = 3, 12
"""Swept columns from which on lines and maps are not enough; machines with a panel each."""
MOST_ROWS = 32
"""Most points in figures with a row for each."""
OVERVIEWS: Mapping[str, Callable[..., Figure]] = {
    "sweep_<column>": sweep_figure,
    "map_<column>_<column>": map_figure,
    "parallel": parallel_figure,
    "scatter": scatter_figure,
    "latency": latency_figure,
    "throughput": throughput_figure,
    "roofline": roofline_figure,
    "roofline_groups": group_roofline_figure,
    "memory": memory_figure,
    "stalls": stalls_figure,
    "waterfall": waterfall_figure,
    "energy": energy_figure,
    "area": area_figure,
    "pareto_area": pareto_figure,
    "pareto_energy": pareto_figure,
    "scaling": scaling_figure,
    "tornado": tornado_figure,
}
"""Name -> function of every figure that compares points."""
DETAILS: Mapping[str, Callable[[Frame, Mapping[str, Arch]], Figure]] = {
    "layers": utilization_figure,
    "engines": gantt_figure,
    "memory_time": occupancy_figure,
    "banks": banks_figure,
    "bandwidth": bandwidth_figure,
}
"""Name -> function of every figure of what happened within one point."""
Archs = Mapping[str, Arch]
Named = Iterator[tuple[str, Figure]]


def overview_figures(
    frame: Frame, archs: Archs, layers: Frame | None = None, sensitivity: Frame | None = None
) -> Named:
    """Name and figure of everything that compares points, as far as the frames say it."""
    yield from sweep_figures(frame, archs)
    shown = frame.loc[quickest(like_with_like(frame)).index]
    ran = runs(frame)
    yield from _counted(_marked(_bars, shown, archs), shown, frame)
    yield from _counted(_run_figures(quickest(ran), archs, layers), quickest(ran), ran)
    yield from _counted(_areas(shown, archs), shown, frame)
    yield from cloud_figures(frame, archs)
    if sensitivity is not None and not sensitivity.empty:
        yield "tornado", tornado_figure(sensitivity)


def _counted(figures: Named, shown: Frame, every: Frame) -> Named:
    """`figures` of the points in `shown`, whose titles say of how many these are the quickest."""
    drawn, known = (sum(map(has_figures, records(own))) for own in (shown, every))
    noun = " estimates" if is_estimated(every) else ""
    for name, figure in figures:
        if drawn < known:
            title(figure, f"{figure.get_suptitle()}: the {drawn} quickest of {known}{noun}")
        yield name, figure


def quickest(frame: Frame) -> Frame:
    """As many points as a figure has rows for: of many those that are quickest among the points of
    their network, of equals those that ran, in the order of the study."""
    if len(frame) <= MOST_ROWS:
        return frame
    ordered = by_merit(frame, "latency_ms")
    networks = [workload(row) for row in records(ordered)]
    place = ordered.groupby(networks).cumcount()
    kept = place.sort_values(kind="stable").index[:MOST_ROWS]
    return frame[frame.index.isin(kept)]


def of_few_machines(frame: Frame) -> Frame:
    """All points, or where machines that are no family would have too many panels the quickest."""
    named = frame[FAMILY].fillna(frame[MACHINE]) if FAMILY in frame else frame[MACHINE]
    return frame if named.nunique() <= _MOST_PANELS else quickest(frame)


def sweep_figures(frame: Frame, archs: Archs) -> Named:
    """Lines, maps and matrices over what was swept, for any number of points."""
    yield from _marked(_sweep_figures, frame, archs)


def _sweep_figures(frame: Frame, archs: Archs) -> Named:
    every = axes(frame, archs)
    names = {axis.column: re.sub(r"[^A-Za-z0-9_.=-]+", "-", axis.label) for axis in every}
    for column in sweep_columns(frame, archs):
        yield f"sweep_{names[column]}", sweep_figure(frame, archs, column)
    for pair in map_columns(frame, archs):
        yield f"map_{names[pair[0]]}_{names[pair[1]]}", map_figure(frame, archs, pair)
    if len(every) >= _SEVERAL and _vary_together(records(frame), every):
        yield "parallel", parallel_figure(frame, archs)
        yield "scatter", scatter_figure(frame, archs)


def _vary_together(rows: Sequence[Record], every: Sequence[StudyAxis]) -> bool:
    """Whether some point differs from the commonest values on three axes and more. Where none
    does, fields were moved one or two at a time, and lines, maps and the tornado say it all."""
    return any(len(axes_moved) >= _SEVERAL for axes_moved in deviating_axes(rows, every))


def row_figures(frame: Frame, archs: Archs, layers: Frame | None = None) -> Named:
    """Figures with a row, or a panel, for each point or machine."""
    yield from _marked(_bars, frame, archs)
    yield from _run_figures(runs(frame), archs, layers)
    yield from _areas(frame, archs)


def _areas(frame: Frame, archs: Archs) -> Named:
    if _has_values(frame, "area_mm2"):
        yield "area", area_figure(frame, archs)


def _bars(frame: Frame, archs: Archs) -> Named:
    named = [axis.column for axis in axes(frame, archs) if not axis.ordered]
    # Where all that differs has an order, lines say more than bars.
    if not sweep_columns(frame, archs) or MACHINE in named or FAMILY in named:
        yield "latency", latency_figure(frame, archs)
        yield "throughput", throughput_figure(frame, archs)


def _run_figures(frame: Frame, archs: Archs, layers: Frame | None) -> Named:
    """Figures of what happened in runs."""
    if frame.empty:
        return
    if layers is not None and not layers.empty and layers["arch"].nunique() <= _MOST_PANELS:
        yield "roofline_groups", group_roofline_figure(layers, archs)
    yield "memory", memory_figure(frame, archs)
    yield "stalls", stalls_figure(frame, archs)
    if _has_values(frame, "of_bound"):
        yield "waterfall", waterfall_figure(frame, archs)
    if _has_values(frame, "energy_mj"):
        yield "energy", energy_figure(frame, archs)


def cloud_figures(frame: Frame, archs: Archs) -> Named:
    """Figures of which each point is a mark, for any number of points."""
    ran = runs(frame)
    if not ran.empty:
        yield "roofline", roofline_figure(of_few_machines(ran), archs)
    yield from _marked(_comparisons, frame, archs)


def _comparisons(frame: Frame, archs: Archs) -> Named:
    for name, against in (("pareto_area", "area_mm2"), ("pareto_energy", "energy_mj")):
        if _has_values(frame, against) and _compared(frame):
            yield name, pareto_figure(frame, "latency_ms", against, archs=archs)
    if scaling_lines(frame, archs):
        yield "scaling", scaling_figure(frame, archs)


def _marked(draw: Callable[[Frame, Archs], Named], frame: Frame, archs: Archs) -> Named:
    """What `draw` makes of the points as they are compared; titles say where that is estimates."""
    guessed = is_estimated(frame)
    for name, figure in draw(like_with_like(frame), archs):
        if guessed:
            title(figure, f"{figure.get_suptitle()}: estimated")
        yield name, figure


def detail_figures(
    archs: Archs,
    layers: Frame | None = None,
    spans: Frame | None = None,
    levels: Frame | None = None,
) -> Named:
    """Name and figure of everything within one point, for each point of the frames given.

    Names are those of `DETAILS` after a folder for the point: `edge-resnet50-b1-int8/engines`.
    """
    drawn_from = {"layers": layers, "engines": spans}
    for name, draw in DETAILS.items():
        frame = drawn_from.get(name, levels)
        for own in split_points(frame) if frame is not None else []:
            if draw is not banks_figure or has_banks(own):
                yield f"{point_folder(own)}/{name}", draw(own, archs)


def point_folder(frame: Frame) -> str:
    """`edge-resnet50-b1-int8`, and everything else that tells the point of `frame` from others."""
    values = {name: str(frame[name].iloc[0]) for name in identity(frame)}
    head = [values.pop(name, "") for name in ("arch", "model", "batch", "dtype")]
    head[1] = head[1].rsplit("/", 1)[-1].removesuffix(".onnx")
    head[2] = f"b{head[2]}"
    usual = {name: str(value) for name, value in DEFAULT.columns.items()}
    values = {name: value for name, value in values.items() if value != usual.get(name)}
    values = {name: value for name, value in values.items() if value != str(pd.NA)}
    rest = [f"{_last(name)}={value}" for name, value in values.items()]
    return re.sub(r"[^A-Za-z0-9_.=-]+", "-", "-".join([*head, *rest]))


def _last(column: str) -> str:
    dim = column.removeprefix(DIMENSION)
    return column.rsplit(".", 1)[-1] if dim == column else dim


def save_plots(
    frame: Frame,
    archs: Archs,
    folder: Path,
    *,
    layers: Frame | None = None,
    spans: Frame | None = None,
    levels: Frame | None = None,
    sensitivity: Frame | None = None,
    details: bool = False,
    formats: Sequence[str] = ("png",),
) -> list[Path]:
    """Draw a study into `folder`; gives the paths of the files.

    Args:
        frame: the study's results, one row for each point.
        archs: every architecture of the frames by name.
        folder: where overviews go; details of a point go into a folder of their own below it.
        layers, spans, levels: the study's other frames, as far as there are any.
        sensitivity: changes by parameter, as `tornado_figure` wants them.
        details: whether to draw what happened within each point.
        formats: of `FORMATS`; a file for each.

    Raises:
        ValueError: for a format that is none.
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise ValueError(f"format {', '.join(unknown)}: must be one of {', '.join(FORMATS)}")
    paths = []
    for name, figure in overview_figures(frame, archs, layers, sensitivity):
        paths += _save(figure, folder / name, formats)
    if details:
        for name, figure in detail_figures(archs, layers, spans, levels):
            paths += _save(figure, folder / name, formats)
    return paths


def _save(figure: Figure, path: Path, formats: Sequence[str]) -> list[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = []
    for name in formats:
        target = path.with_name(f"{path.name}.{name}")
        if name == "svg":
            write_text(target, svg_text(figure))
        else:
            metadata = _NO_DATE.get(name)
            write_atomically(
                target, partial(figure.savefig, format=name, dpi=_DPI, metadata=metadata)
            )
        made.append(target)
    return made


def _has_values(frame: Frame, column: str) -> bool:
    return column in frame and bool(frame[column].notna().any())


def _compared(frame: Frame) -> bool:
    """Whether any workload has two points to choose from."""
    loads = [workload(row) for row in records(frame) if has_figures(row)]
    return len(set(loads)) < len(loads)


# Pictures of an earlier shape of a study, taken away when it is drawn anew.

DRAWN = "plots.json"
"""In the folder of a study: the pictures that archgen has drawn there, with their SHA-256."""
STUDY, EXPLORE = "pictures", "explore"
"""Who has drawn them: a study may stand in the folder of a search, and each keeps its own."""


def keep_only(folder: Path, made: Iterable[Path], whose: str = STUDY) -> list[Path]:
    """Remove what was drawn into `folder` before, by the same verb, and is not among `made`; gives
    what went."""
    now = {path.name: _digest(path) for path in made}
    drawn = _drawn(folder)
    stale = [
        folder / name
        for name, digest in drawn.get(whose, {}).items()
        if name not in now and _digest(folder / name) == digest
    ]
    for path in stale:
        path.unlink(missing_ok=True)
    write_sealed(folder / DRAWN, json.dumps(drawn | {whose: now}, indent=1).encode())
    return stale


def _drawn(folder: Path) -> dict[str, dict[str, str]]:
    """What the list says; nothing where there is none, or none that can be trusted."""
    content = read_sealed(folder / DRAWN)
    return {} if content is None else dict(json.loads(content))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
