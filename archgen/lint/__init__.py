"""Is this machine plausible? What a file may say and nobody would build, or could not use.

`rules` is the table of what is looked at, with limits and sources; `known` the published chips that
machines are held against; the `of_*` modules hold one function for each rule; `findings` asks all,
`brief` tells of many machines.
"""

from archgen.lint.brief import brief
from archgen.lint.findings import Finding, findings, located
from archgen.lint.rules import RULES, Rule

__all__ = ["RULES", "Finding", "Rule", "brief", "findings", "located"]
