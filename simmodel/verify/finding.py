"""What the verifier reports: findings, each with its rule and place, ."""

from __future__ import annotations

from dataclasses import dataclass

from simmodel.isa import Instruction
from simmodel.program.assembly import print_item
from simmodel.program.program import Program

SHOWN = 20
"""Most findings listed in an error."""


@dataclass(frozen=True)
class Finding:
    """One broken rule."""

    rule: str
    message: str
    core: int | None = None
    engine: str = ""
    text: str = ""
    """The instruction, as assembly."""
    node: str = ""
    """Model node of the instruction."""

    def __str__(self) -> str:
        place = "" if self.core is None else f" core {self.core}"
        place += f" {self.engine}" if self.engine else ""
        lines = [f"[{self.rule}]{place}: {self.message}"]
        if self.text:
            lines.append(f"    {self.text}" + (f"  ; {self.node}" if self.node else ""))
        return "\n".join(lines)


def found_at(
    program: Program, rule: str, message: str, core: int, instruction: Instruction
) -> Finding:
    """A finding about an instruction of `core`."""
    known = 0 <= instruction.origin < len(program.origins)
    node = program.origins[instruction.origin].node if known else ""
    return Finding(rule, message, core, instruction.engine, print_item(instruction), node)


class VerifyError(ValueError):
    """A program breaks rules; `findings` holds all of them."""

    def __init__(self, name: str, findings: tuple[Finding, ...]) -> None:
        self.findings = findings
        shown = "\n".join(str(finding) for finding in findings[:SHOWN])
        more = len(findings) - SHOWN
        tail = f"\n... and {more} more" if more > 0 else ""
        rules = "a rule" if len(findings) == 1 else f"{len(findings)} rules"
        super().__init__(f"program {name!r} breaks {rules}:\n{shown}{tail}")
