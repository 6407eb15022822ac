"""Passes: small frozen dataclasses from an IR to the same IR, run with their contracts checked.

The one idea: the fields of a pass are its options, so a study can sweep them, and its class name
gives everything else: `FoldBatchNorm` is `fold-batch-norm` on the command line and in
`tests/cases/`, and lives in `fold_batch_norm.py`. The IR is a type parameter: graph passes rewrite
an `onnx_ir.Model` in place and return it, later ones may return a new value.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Concatenate, Generic, ParamSpec, TypeVar

from pydantic import Field

from compiler.errors import CompilerError

# What an option of a pass may be: its type, and the range that is written into it.


def within(low: float, high: float | None = None) -> Any:
    """Numbers from `low` to `high`, both included, as pydantic checks and describes them."""
    return Field(ge=low, le=high)


Amount = Annotated[int, within(0)]
"""How many there may be; 0: none."""
Count = Annotated[int, within(1)]
"""How many there are, at least one."""
Share = Annotated[float, within(0, 1)]
"""A part of a whole."""
Factor = Annotated[float, within(0)]
"""A weight, or what something is multiplied by."""


@dataclass(frozen=True)
class Omittable:
    """A pass that may be left out: what it makes is better, not more right."""

    enabled: bool = True
    """False: the pass is left out."""


IR = TypeVar("IR")
Made = TypeVar("Made")
P = ParamSpec("P")


class ContractBroken(Exception):
    """What `requires` and `ensures` raise: the sentence that does not hold."""


class PassFailed(Exception):
    """A pass broke its contract or crashed, which is no refusal but an error of the compiler's own;
    names the pass and those that ran before it."""


@dataclass(frozen=True)
class Result(Generic[IR]):
    """What a pass made, and whether that differs from what it was given."""

    ir: IR
    changed: bool


def pass_name(cls: type) -> str:
    """`FoldBatchNorm` -> `fold-batch-norm`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()


@dataclass(frozen=True)
class Pass(ABC, Generic[IR]):
    """One rewrite of one IR; the docstring of each subclass shows a before/after picture."""

    @property
    def name(self) -> str:
        """The name on command lines and of the folder of cases."""
        return pass_name(type(self))

    @abstractmethod
    def apply(self, ir: IR) -> Result[IR]:
        """Rewrite `ir`, in place or anew."""

    def requires(self, ir: IR) -> None:
        """Raise `ContractBroken` where `ir` is not what passes of this kind take and make."""
        del ir

    def ensures(self, ir: IR) -> None:
        """Raise `ContractBroken` where `ir` is not what this pass promises beyond that."""
        del ir


def check_each_once(wanted: Iterable[str], found: Iterable[str]) -> None:
    """Raise ContractBroken unless `found` are `wanted`, in any order and each as often."""
    asked, made = Counter(wanted), Counter(found)
    for more, said in ((asked - made, "is lost"), (made - asked, "is there too often")):
        if more:
            raise ContractBroken(f"{next(iter(more))} {said}")


def ensured(apply: Callable[Concatenate[Any, P], Made]) -> Callable[Concatenate[Any, P], Made]:
    """The `apply` of a stage with a signature of its own: what it made is shown to the stage's
    `ensures(made, *given)`, whose ContractBroken becomes `PassFailed`."""

    @wraps(apply)
    def checked(self: Any, /, *given: P.args, **named: P.kwargs) -> Made:
        made = apply(self, *given, **named)
        try:
            self.ensures(made, *given, **named)
        except ContractBroken as why:
            raise PassFailed(f"{pass_name(type(self))} (ensures): {why}") from why
        return made

    return checked


Observer = Callable[[Pass[IR], Result[IR]], None]


def run_pass(
    step: Pass[IR], ir: IR, before: Sequence[str] = (), *, met: bool = False
) -> Result[IR]:
    """Run one pass between its two checks; what it requires may be `met`, as it was checked.

    One that is left out changes nothing. Raises `PassFailed`, chained to the cause; a
    `CompilerError` of the pass itself (a refusal with a reason) passes through unchanged.
    """
    if isinstance(step, Omittable) and not step.enabled:
        return Result(ir, changed=False)
    phase = "requires"
    try:
        if not met:
            step.requires(ir)
        phase = "apply"
        result = step.apply(ir)
        phase = "ensures"
        if result.changed:
            step.requires(result.ir)
        step.ensures(result.ir)
    except (CompilerError, PassFailed):
        raise
    except Exception as cause:
        history = " > ".join(before) or "nothing"
        notes: list[str] = getattr(cause, "__notes__", [])
        where = "".join(f" {note}" for note in notes if note.startswith("on "))
        kind = "" if isinstance(cause, ContractBroken) else f"{type(cause).__name__}: "
        raise PassFailed(
            f"{step.name} ({phase}){where}: {kind}{cause}; ran before it: {history}"
        ) from cause
    return result


def run_passes(
    steps: Iterable[Pass[IR]], ir: IR, observe: Observer[IR] | None = None
) -> Result[IR]:
    """Run `steps` in order; `observe(step, result)` is called after each (printing, statistics)."""
    made, done = Result(ir, changed=False), list[str]()
    met: object = None
    for step in steps:
        asked = type(step).requires
        result = run_pass(step, made.ir, done, met=met is asked)
        if not isinstance(step, Omittable) or step.enabled:
            met = asked
        made = Result(result.ir, made.changed or result.changed)
        done.append(step.name)
        if observe is not None:
            observe(step, result)
    return made
