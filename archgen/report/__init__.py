"""A study as one self-contained HTML page for an architecture review.

From a study's frames to text, in steps that are plain functions: `points` (rows with names and
anchors), `ranking`, `account` (what bounds each point), `levers` (what to change, what that gains
at most and costs), `summary` (sentences), `sheets` (tables), `figures` (SVG) and `page` (all of it
in a template). `card` is the short form for notebooks.
"""

from archgen.report.page import REPORT, card_html, report_html, write_report

__all__ = ["REPORT", "card_html", "report_html", "write_report"]
