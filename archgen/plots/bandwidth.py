"""What DRAM and each link moved over time, against what they can."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from archgen.outcomes.frame import Frame
from archgen.plots.levels import Series, link_peak, series, total
from archgen.plots.style import BROWN, INK, ORANGE, SETTINGS, VERMILION, say, title
from archgen.plots.timeline import WIDTH, point_title, time_axis
from simmodel.arch import Arch

_WAYS: Mapping[str, str] = {"read": ORANGE, "write": VERMILION}
_LINK = "link."


@rc_context(SETTINGS)
def bandwidth_figure(levels: Frame, archs: Mapping[str, Arch]) -> Figure:
    """Bytes per cycle of DRAM, reads and writes stacked, and of each link, of one point.

    The line is the peak: of a link, that of all its instances and directions together. Raises
    ValueError for the rows of several points.
    """
    text = point_title(levels)
    arch = archs[str(levels["arch"].iloc[0])]
    own = series(levels, "bandwidth")
    dram = {way: own[f"dram.{way}"] for way in _WAYS if f"dram.{way}" in own}
    if "dram" in own:
        dram = {"read": own["dram"]}
    links = {name: own[name] for name in own if name.removeprefix(_LINK) in arch.links}
    silent = [name.removeprefix(_LINK) for name, moved in links.items() if not moved.values.any()]
    links = {name: moved for name, moved in links.items() if moved.values.any()}
    unused = f"; nothing over {', '.join(silent)}" if silent else ""
    count = max(1, bool(dram) + len(links))
    figure = Figure(figsize=(WIDTH, 1.3 + 1.45 * count), layout="constrained")
    grid = figure.subplots(count, 1, squeeze=False).ravel().tolist()
    title(figure, f"Bandwidth over time: {text}{unused}")
    if not dram and not links:
        say(grid[0], "nothing is known of what was moved")
        return figure
    panels: list[tuple[str, dict[str, Series], float]] = []
    if dram:
        panels.append(("DRAM", dram, arch.dram_bytes_per_cycle))
    for name, moved in links.items():
        link = name.removeprefix(_LINK)
        panels.append((f"link {link}", {"link": moved}, link_peak(arch, link)))
    for axes, (name, parts, peak) in zip(grid, panels, strict=True):
        _draw(axes, name, parts, peak, arch.clock)
        time_axis(axes, next(iter(parts.values())).edges[-1], arch, bottom=axes is grid[-1])
    used = [*dram, *(["link"] if links else [])]
    handles = [Patch(label=way, color=_colour(way)) for way in used]
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles))
    return figure


def _colour(way: str) -> str:
    return _WAYS.get(way, BROWN)


def _draw(axes: Axes, name: str, parts: Mapping[str, Series], peak: float, clock: float) -> None:
    base: Series | None = None
    for way, own in parts.items():
        top = own if base is None else total([base, own])
        axes.stairs(
            top.values, top.edges, baseline=0 if base is None else base.values, fill=True,
            color=_colour(way),
        )  # fmt: skip
        base = top
    if base is None:
        return
    axes.axhline(peak, color=INK, lw=1)
    axes.set_ylim(0, 1.08 * max(peak, base.values.max()))
    axes.set_ylabel("bytes / cycle")
    mean = base.mean
    axes.set_title(
        f"{name}: mean {mean:.3g} of {peak:.4g} bytes / cycle "
        f"({mean / peak:.0%}, {mean * clock / 1e9:.3g} of {peak * clock / 1e9:.4g} GB/s)"
    )
