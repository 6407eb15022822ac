"""What the compiler says when it cannot go on: one class per kind of refusal.

`DoesNotFit` is an answer, not an accident: it carries the sum that does not fit and the levers
that would make it fit, so that the driver can react field by field and the command line can print
it. All errors survive pickling, because studies compile in worker processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from types import MappingProxyType

from simmodel.errors import UserError

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB")


class CompilerError(UserError):
    """The compiler refuses; the message says what, where and why."""


class UnsupportedModel(CompilerError):
    """The model holds something that no architecture could be given; all of it is listed."""


class Undecided(UnsupportedModel):
    """Refused as it is, and perhaps not where inputs of the graph are constants.

    `inputs` are their names, in groups: those that are more likely to be parameters first.
    """

    def __init__(self, message: str, inputs: tuple[tuple[str, ...], ...]) -> None:
        super().__init__(message, inputs)
        self.inputs = inputs

    def __str__(self) -> str:
        return str(self.args[0])


@contextmanager
def on(what: str | Callable[[], str]) -> Iterator[None]:
    """Say of every error within, except for refusals, what it happened to: `on node 'a' (Add)`."""
    try:
        yield
    except CompilerError:
        raise
    except Exception as mistake:
        mistake.add_note(f"on {what if isinstance(what, str) else what()}")
        raise


def operator_name(op_type: str, domain: str = "") -> str:
    """`Relu`, or `com.acme.Frobnicate` where neither ONNX nor this compiler defines it."""
    return op_type if domain in ("", "ai.onnx", "archgen") else f"{domain}.{op_type}"


def at_node(name: str | None, operator: str) -> str:
    """How every message names a node of the model: `node 'foo' (com.acme.Frobnicate)`, with the
    domain also where it is ONNX's own: `node 'bar' (ai.onnx.Relu)`."""
    return f"node {name or ''!r} ({operator if '.' in operator else f'ai.onnx.{operator}'})"


def quantity(amount: int, unit: str) -> str:
    """`amount` for a reader: bytes in the largest binary unit that keeps two digits exact."""
    if unit != "B" or amount < 1024:
        return f"{amount} {unit}"
    power = min((int(amount).bit_length() - 1) // 10, len(_BYTE_UNITS) - 1)
    size = amount / (1 << 10 * power)
    return f"{size:.{0 if size == int(size) else 1}f} {_BYTE_UNITS[power]}"


@dataclass(unsafe_hash=True, repr=False)
class DoesNotFit(CompilerError):
    """`demand` exceeds `bound`, both in `unit`; `terms` add up to the demand.

    `where` names the layer and memory, as in "resnet/conv1: local memory"; `levers` are changes of
    the input that would make it fit.
    """

    demand: int
    bound: int
    unit: str
    terms: tuple[tuple[str, int], ...]
    levers: tuple[str, ...]
    where: str

    def __reduce__(self) -> tuple[Callable[..., DoesNotFit], tuple[object, ...]]:
        return type(self), astuple(self)

    def __str__(self) -> str:
        need, have = quantity(self.demand, self.unit), quantity(self.bound, self.unit)
        text = f"{self.where} needs {need}, has {have}"
        if self.terms:
            text += ": " + ", ".join(f"{name} {quantity(n, self.unit)}" for name, n in self.terms)
        if self.levers:
            text += "; try: " + ", or ".join(self.levers)
        return text


class TooFewTokens(DoesNotFit):
    """A program takes more tokens than there are; `by_step`: those that each of its steps takes."""

    by_step: Mapping[int, int] = MappingProxyType({})
