"""The table of rules: what each looks at, its limit, and where that comes from.

The one idea: what is judged is data (`rules.yaml`); a function with the rule's name, in one of the
`of_*` modules, only says where a machine stands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from archgen.lint.known import Part
from archgen.schema.source import read_tree
from archgen.schema.tree import plain

FILE = Path(__file__).with_name("rules.yaml")
Kind = Literal["depthwise"]
"""Layers that not every network has."""
Severity = Literal["error", "warning", "note"]
SEVERITIES: dict[Severity, str] = {
    "error": "nobody builds this",
    "warning": "something stands in the way, or is paid for and cannot be used",
    "note": "unusual, worth a look",
}
"""The worst first."""


class Rule(Part):
    """One thing that is looked at."""

    severity: Severity
    about: str
    """What is looked at."""
    limit: float
    measure: str
    """Of what `limit` is the number."""
    layers: Kind | None = None
    """What networks must have for the rule to matter: a study of such says its notes too."""
    source: str
    """Of the limit; `chips`: the published chips."""
    status: Literal["read", "derived", "recalled", "assumed"] = "derived"

    @property
    def threshold(self) -> str:
        """The limit in words."""
        return f"{self.limit:g} {self.measure}"


def load_rules(path: Path) -> dict[str, Rule]:
    """The rules in the file `path`, by name."""
    tree, mistakes = read_tree(path, str(path))
    assert tree is not None and not mistakes, mistakes
    held = plain(tree)
    assert isinstance(held, dict)
    return {name: Rule.model_validate(rule) for name, rule in held.items()}


RULES = load_rules(FILE)
"""Name -> rule, in the order of the table."""
