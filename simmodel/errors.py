"""Errors of programs, when they are verified and when they run, and of what users give."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import index
from typing import Any, Self

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


class VerifyError(ValueError):
    """A program breaks rules; `findings` holds all of them."""

    def __init__(self, name: str, findings: tuple[Finding, ...]) -> None:
        self.findings = findings
        shown = "\n".join(str(finding) for finding in findings[:SHOWN])
        more = len(findings) - SHOWN
        tail = f"\n... and {more} more" if more > 0 else ""
        rules = "a rule" if len(findings) == 1 else f"{len(findings)} rules"
        super().__init__(f"program {name!r} breaks {rules}:\n{shown}{tail}")


class UserError(Exception):
    """What a user gave is wrong, rather than something of archgen's own."""


class WrongArgument(UserError, TypeError):
    """An argument of a function that is another kind of thing."""


MACHINE = 'a machine as load_arch("archs/mcu-npu.yaml") gives it'
PROGRAM = "a program as compile_model(model, arch) gives it"


def expect(argument: str, value: object, kinds: type | tuple[type, ...], wanted: str) -> None:
    """Raise WrongArgument where `value` is none of `kinds`, which are `wanted` in words."""
    if not isinstance(value, kinds):
        given = repr(value) if isinstance(value, str) else type(value).__name__
        raise WrongArgument(f"{argument}: expected {wanted}, not {given}")


def whole_number(argument: str, value: Any) -> int:
    """`value` as an int, of whatever library it is; WrongArgument where it is no whole number."""
    try:
        return index(value)
    except TypeError:
        raise WrongArgument(f"{argument}: expected a whole number, not {value!r}") from None


class SeveralMistakes(UserError, ValueError):
    """The same in one respect or several; `mistakes` holds all of them."""

    def __init__(self, mistakes: Iterable[str]) -> None:
        self.mistakes = list(mistakes)
        super().__init__("\n".join(self.mistakes))

    def __reduce__(self) -> tuple[type[Self], tuple[list[str]]]:
        return type(self), (self.mistakes,)


class Deadlock(Exception):
    """Nothing happens any more, with work left; the text lists what each engine waits for."""


class NotRunnable(ValueError):
    """The program needs a part that the architecture lacks (engine, token, barrier, memory), or
    something that no machine does."""


class TooLong(NotRunnable):
    """A stream stands for more instructions than can be listed."""


class Impossible(RuntimeError):
    """A run did less than its outputs need: run or demand is wrong, and so are all figures."""


class NoSuchRow(ValueError):
    """An index in a program's data names a row that its table does not have."""

    def __init__(self, index: int, rows: int, node: str = "") -> None:
        self.index, self.rows = index, rows
        where = f"{node}: " if node else ""
        super().__init__(
            f"{where}index {index} is out of range, expected {-rows} .. {rows - 1} ({rows} rows)"
        )


class HostFailed(ValueError):
    """The results of a payload do not match the outputs of its host call."""


class NoPayload(HostFailed):
    """A payload is no model that the host can run."""
