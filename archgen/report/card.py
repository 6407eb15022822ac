"""The short form of a study, for notebooks: its first sentences and its machines in a table.

The one idea: a notebook shows it as the last value of a cell, so it has no script, no style of its
own beyond alignment, and no figure.
"""

from __future__ import annotations

from markupsafe import Markup, escape

from archgen.report.points import PointView, views
from archgen.report.ranking import Ranking, rank
from archgen.report.sheet import Cell, Sheet
from archgen.report.subject import Subject
from archgen.report.summary import sentences
from archgen.report.tables import machines_sheet, points_sheet

_ROWS = 20
_COLUMNS = (
    "machine", "workload", "choice", "status", "latency", "throughput", "matrix_use",
    "of_roofline", "bound", "largest_wait", "energy", "area", "verified",
)  # fmt: skip


def card_html(study: Subject) -> str:
    """`study` in a few sentences and one table: machines, or points where there is one machine."""
    points = views(study)
    used = {point.machine for point in points}
    ranking = rank(points, [arch for arch in study.archs if arch.name in used])
    title = escape(study.about.name or "Study")
    said = Markup(" ").join(
        escape(text) for text in sentences(points, ranking, {}, study.about.total)
    )
    table = _table(_shown(points, ranking))
    return str(Markup("<div><p><strong>{}</strong>: {}</p>{}</div>").format(title, said, table))


def _shown(points: list[PointView], ranking: Ranking) -> Sheet:
    if len(ranking.ranked) > 1 and len(points) > _ROWS:
        return machines_sheet(ranking)
    return points_sheet(points, ranking, lambda point: "")


def _table(sheet: Sheet) -> Markup:
    """The known columns of `sheet`, its first rows."""
    all_names = [heading.name for heading in sheet.headings]
    kept = [i for i, name in enumerate(all_names) if name in _COLUMNS or sheet.name == "machines"]
    head = Markup().join(
        Markup("<th>{}{}</th>").format(sheet.headings[i].text, _unit(sheet.headings[i].unit))
        for i in kept
    )
    rows = Markup().join(
        Markup("<tr>{}</tr>").format(Markup().join(_cell(sheet, row[i], i) for i in kept))
        for row in sheet.rows[:_ROWS]
    )
    left = len(sheet.rows) - _ROWS
    more = Markup("<p>… and {} more rows</p>").format(left) if left > 0 else Markup()
    body = Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>{}")
    return body.format(head, rows, more)


def _unit(unit: str) -> str:
    return f" [{unit}]" if unit else ""


def _cell(sheet: Sheet, cell: Cell, place: int) -> Markup:
    align = "right" if sheet.headings[place].number else "left"
    return Markup('<td style="text-align: {}">{}</td>').format(align, cell.text)
