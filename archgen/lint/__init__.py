"""Is this machine plausible? What a file may say and nobody would build, or could not use.

`rules` is the table of what is looked at, with limits, sources and published chips; `subject` the
figures of a machine that it names; `findings` asks all, `brief` tells of many machines.
"""

from archgen.lint.findings import brief, findings, located
from archgen.lint.rules import RULES, LintFinding, LintRule

__all__ = ["RULES", "LintFinding", "LintRule", "brief", "findings", "located"]
