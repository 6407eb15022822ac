"""The whole page: everything that a study says, put into the template.

The one idea: the template lays out and escapes, and computes nothing. All that it shows is made
here by plain functions, so a test can look at the values before they are text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from os import PathLike
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

import archgen.report.tables as tables
from archgen.outcomes.bottleneck import flat_notes, main_verdicts, verdict
from archgen.outcomes.columns import COLUMNS, LIMITS, STALLS, column
from archgen.outcomes.points import Outcome
from archgen.plots.saving import MOST_ROWS
from archgen.process.files import write_text
from archgen.report.account import Account, account
from archgen.report.figures import (
    COSTS,
    DETAILS,
    bars_of,
    chosen_details,
    details,
    drawings_of,
    explorer,
    within_size,
)
from archgen.report.levers import LEAST, Lever, for_energy, levers
from archgen.report.points import PointView, ReportSubject, point_views
from archgen.report.ranking import (
    Ranking,
    Standing,
    identical_machines,
    machine_content,
    measured,
    rank,
)
from archgen.report.search_results import findings
from archgen.report.sheet import counted, listed, percent, short, signed, times
from archgen.report.summary import sentences
from archgen.report.tables import layer_sheet
from archgen.schema.rewritten import fields_of

REPORT = "report.html"
MOST = 9_500_000
"""Bytes of a page: what mail takes and a browser opens at once."""
MACHINES = 8
"""Most machines whose levers are listed."""
_SECTIONS = 10_000
"""Sections of machines' files whose text is kept."""
_LEAST_WAIT = 0.005
"""Share of the time below which a cause of waiting is not worth naming."""


def write_report(
    study: ReportSubject, target: str | PathLike[str], folder: Path | None = None
) -> Path:
    """Write the report of `study` as the file `target`, whole or not at all; what a search or a
    sensitivity has left in the `folder` of the study has sections too."""
    path = Path(target)
    write_text(path, report_html(study, folder))
    return path


def report_html(study: ReportSubject, folder: Path | None = None) -> str:
    """The report of `study`: one HTML page that needs nothing else; arguments as above."""
    template, said = _environment().get_template("report.html.j2"), content(study, folder)
    bare = [each | {"figures": []} for each in said["details"]]
    # Details have the room that everything else leaves.
    room = MOST - len(template.render(said | {"details": bare}).encode())
    every = within_size([each["figures"] for each in said["details"]], room)
    pairs = zip(said["details"], every, strict=True)
    return template.render(said | {"details": [each | {"figures": own} for each, own in pairs]})


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("archgen.report"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "percent": percent, "signed": signed, "short": short, "times": times,
        "counted": counted, "listed": listed, "raw": Markup,
    }  # fmt: skip
    return made


def content(study: ReportSubject, folder: Path | None = None) -> dict[str, Any]:
    """Everything that the template shows, by name."""
    points = point_views(study)
    ranking = _ranking(study, points)
    ran = [each for each in ranking.ranked if any(p.has_run for p in each.best.values())]
    accounts = {
        each.name: [account(p, study.outcomes[p.index]) for p in each.best.values() if p.has_run]
        for each in ran[:MOST_ROWS]
    }
    of_point = {each.point.index: each for own in accounts.values() for each in own}
    groups = identical_machines(ran)
    known = {machine_content(own[0].arch): own for own in groups}
    found = {
        own.name: levers(own.arch, accounts[own.name], partial(measured, standing=own, known=known))
        for own, *_ in groups[:MACHINES]
    }
    shown = chosen_details([own[0] for own in groups], ranking.workloads)
    detailed, machine_card = {point.index for point in shown}, _machine_cards(ranking, groups)
    # A point leads to what says most of it: its details, what bounds its machine, or its file.
    table = tables.points_sheet(
        points, ranking, lambda p: p.anchor if p.index in detailed else machine_card(p.machine)
    )
    fields = [heading for heading, _ in tables.swept(points)]
    rows = bars_of(len(points), ranking)
    figures = [*drawings_of(study.overviews.items())]
    known_columns = dict.fromkeys(column(str(name), COLUMNS) for name in study.frame)
    notes = [*(p.text("note") for p in points), *flat_notes(study.frame, study.by_name)]
    return {
        "about": study.about,
        "found": findings(folder, machine_card),
        "title": study.about.name or "Study",
        "sentences": sentences(study, points, ranking, {n: own for n, (own, _) in found.items()}),
        "ranking": ranking,
        "machines": tables.machines_sheet(ranking),
        "points": table,
        "explorer": explorer(table, fields, tables.lengths(points)),
        "refusals": tables.refusals(points),
        "bounds": tables.bounds_sheet([*of_point.values()]),
        "waterfall": tables.waterfall_sheet([points[i] for i in rows if points[i].has_run]),
        "reviews": [
            _review(own, points, accounts[own[0].name], *found[own[0].name], study)
            for own in groups[:MACHINES]
        ],
        "distinct": len(groups),
        "for_energy": for_energy([*of_point.values()]),
        "figures": [each for each in figures if each.name not in COSTS],
        "cost_figures": [each for each in figures if each.name in COSTS],
        "areas": tables.area_sheet(ranking.standings),
        "energies": tables.energy_sheet([p for s in ran for p in s.best.values() if p.has_run]),
        "estimated": sum(point.is_guess for point in points),
        "details": [_detail(of_point[p.index], study.outcomes[p.index]) for p in shown],
        "checks": tables.checks_sheet(points),
        "notes": list(dict.fromkeys(filter(None, notes))),
        "stalls": STALLS,
        "files": [_file(ranking, standing) for standing in ranking.standings],
        # Name, unit and meaning of each column of the results.
        "glossary": [each for each in known_columns if each is not None],
        "limits": {"bars": MOST_ROWS, "details": DETAILS, "machines": MACHINES},
        "count": len(points),
    }


def _ranking(study: ReportSubject, points: Sequence[PointView]) -> Ranking:
    used = {point.machine for point in points}
    return rank(points, [arch for name, arch in study.by_name.items() if name in used])


def _machine_cards(ranking: Ranking, groups: Sequence[Sequence[Standing]]) -> Callable[[str], str]:
    """For each machine the id of what bounds it, else of its file; empty for one that is not in
    the study."""
    files = {name: tables.yaml_anchor(ranking, name) for name in ranking.places}
    numbered = enumerate(groups[:MACHINES], 1)
    files |= {standing.name: f"review-{n}" for n, own in numbered for standing in own}
    return lambda name: files.get(name, "")


def _review(
    same: Sequence[Standing], points: Sequence[PointView], own: Sequence[Account],
    changes: Sequence[Lever], without: Sequence[str], study: ReportSubject,
) -> dict[str, Any]:  # fmt: skip
    """What bounds one machine, whatever it is called, and what could be changed about it."""
    standing, first = same[0], same[0].points[0]
    return {
        "standing": standing,
        "others": [each.name for each in same[1:]],
        "said": tables.machine_description(first, study.outcomes[first.index], points),
        "limit": _limit(own, changes),
        "waits": _waits(own),
        "accounts": own,
        "levers": changes,
        "without": without,
    }


def _limit(accounts: Sequence[Account], changes: Sequence[Lever]) -> str:
    """What holds up the machine on each of a few networks, and whether a lever moves that."""
    longest = [each.point for each in sorted(accounts, key=lambda each: -each.point.time)]
    said = []
    for name, found in main_verdicts([(each.workload, verdict(each.row)) for each in longest]):
        fields = LIMITS[found.cause].fields
        moved = not fields or any(each in fields for lever in changes for each in lever.fields)
        none = f" No lever moves it: changes of {listed(fields)} save less than {percent(LEAST)}."
        where = f"{name}: " * (len(longest) > 1)
        said.append(f"{where}{found.sentence}.{'' if moved else none}")
    return " ".join(said)


def _waits(accounts: Sequence[Account]) -> list[tuple[str, float]]:
    """The largest causes of waiting, as means over the runs."""
    means = {cause: sum(each.waits[cause] for each in accounts) / len(accounts) for cause in STALLS}
    ranked = sorted(means.items(), key=lambda item: -item[1])
    return [(cause, share) for cause, share in ranked[:3] if share >= _LEAST_WAIT]


def _detail(own: Account, outcome: Outcome) -> dict[str, Any]:
    figures = details(own.point, outcome)
    return {"point": own.point, "figures": figures, "layers": layer_sheet(own)}


def _file(ranking: Ranking, standing: Standing) -> tuple[str, str, str]:
    """Id, name and text of a machine's file with every field, defaults too."""
    fields = fields_of(standing.arch)
    text = "".join(_section(name, json.dumps(value)) for name, value in fields.items())
    return tables.yaml_anchor(ranking, standing.name), standing.name, text


@lru_cache(_SECTIONS)
def _section(name: str, content: str) -> str:
    """YAML of one section of a machine's file, in which machines of a sweep hardly differ; from
    JSON."""
    value = json.loads(content)
    flow = None if isinstance(value, dict | list) else False
    return yaml.dump(
        {name: value}, None, yaml.CSafeDumper, sort_keys=False, default_flow_style=flow, width=100
    )


# The short form of a study, for notebooks: its first sentences and its machines in a table.

_ROWS = 20
_COLUMNS = (
    "machine", "workload", "choice", "status", "latency", "throughput", "matrix_use",
    "of_bound", "held_by", "energy", "area", "verified",
)  # fmt: skip


def card_html(study: ReportSubject) -> str:
    """`study` in a few sentences and one table: machines, or points where there is one machine."""
    points = point_views(study)
    ranking = _ranking(study, points)
    machines = len(ranking.ranked) > 1 and len(points) > _ROWS
    table = tables.machines_sheet(ranking)
    if not machines:
        table = tables.points_sheet(points, ranking, lambda point: "")
    places = [n for n, each in enumerate(table.headings) if machines or each.name in _COLUMNS]
    return _environment().get_template("card.html.j2").render(
        title=study.about.name or "Study",
        sentences=sentences(study, points, ranking, {}),
        table=table, places=places, rows=_ROWS,
    )  # fmt: skip
