"""ONNX's own node tests, compiled and executed: a floor that only rises.

    python studies/benchmarks/onnx_nodes.py [--only TEXT] [--check | --write]

Every case that the package `onnx` ships goes through `archgen.backend`, so through compiler,
verifier and executor, on its machine, twice: `plain` as it is, where shapes and parameters that are
inputs are compiled in (docs/backend.md), and `constant` with all inputs but the first as
initializers, as weights, axes and scales are in networks. What becomes of it is one of

    native     right, on the machine's engines alone
    host       right, with calls to the host
    refused    turned away in words before anything ran
    crash      an error of archgen's own
    wrong      other numbers than expected, or another shape or type

A result is right within the tolerance that the case gives, or two roundings of its element type.
Where it is not, ONNX Runtime is asked: a result that agrees with it is right too, and listed.
First come the cases of deterministic inference: all but those of operators that are outside of what
is compiled whatever the machine (training, classical machine learning, random values, as Dropout
makes them where it trains), and those that take or give text, sequences or optional values.
`--check` compares with the committed table, `onnx_nodes.txt`, and ends with 1 where a case has got
worse, crashes or is wrong; `--write` makes the table anew. About four minutes of one core.
"""

from __future__ import annotations

import argparse
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from tables import table

from archgen import backend
from archgen.backend import DEFAULT
from archgen.check.reference import run_reference
from archgen.models.load import ModelError
from archgen.schema import load_arch
from compiler.api import CompilerError, other_ports
from compiler.frontend.reference_types import outside
from simmodel.arch.dtype import NAMES
from simmodel.arch.element_types import EPSILON

FOLDER = Path(__file__).parent
TABLE = FOLDER / "onnx_nodes.txt"
ARCH = load_arch(str(DEFAULT))
WAYS = ("plain", "constant")
WORDS = ("native", "host", "refused", "crash", "wrong")
"""From best to worst."""
RIGHT = ("native", "host")
BAD = ("crash", "wrong")

Array = NDArray[Any]
Value = Any
"""An array; a list of them or None for types that are no tensors."""


@dataclass(frozen=True)
class Case:
    """One test of one operator."""

    name: str
    proto: onnx.ModelProto
    inputs: Mapping[str, Value]
    expected: Sequence[Value]
    rtol: float
    atol: float

    @property
    def operator(self) -> str:
        """The type of its first node."""
        node = self.proto.graph.node[0]
        return f"{node.domain}.{node.op_type}" if node.domain else str(node.op_type)


@dataclass(frozen=True)
class Answer:
    """What became of a case in one way."""

    word: str
    why: str = ""
    judged: str = ""
    """Why ONNX Runtime's numbers were taken for right instead of the expected ones."""


@dataclass(frozen=True)
class Row:
    """A case in both ways."""

    case: str
    operator: str
    answers: tuple[Answer, ...]
    left_out: str = ""
    """Why it is no case of deterministic inference; empty: it is one."""


def cases() -> list[Case]:
    """All node tests of the installed `onnx`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    return [_case(test) for test in found]


def _case(test: Any) -> Case:
    inputs, expected = test.data_sets[0]
    names = [value.name for value in test.model.graph.input]
    given = dict(zip(names, map(_plain, inputs), strict=True))
    return Case(test.name, test.model, given, [*map(_plain, expected)], test.rtol, test.atol)


def _plain(value: Value) -> Value:
    """Tensors as arrays; what is no tensor as it is."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return value if value is None or isinstance(value, list | dict) else np.asarray(value)


def row(case: Case) -> Row:
    """A case, as it is and with parameters that are constants."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = case.proto, with_constants(case)
        return Row(case.name, case.operator, tuple(answer(case, m) for m in models), left_out(case))


def left_out(case: Case) -> str:
    """Why a case is none of deterministic inference; empty where it is one."""
    nodes = case.proto.graph.node
    for node in nodes:
        why = outside(node.op_type, "" if node.domain == "ai.onnx" else node.domain)
        if why is not None or _trains(node, case):
            return why.split(";")[0] if why is not None else "dropout in training"
    return "text, sequences, optional values" if other_ports(case.proto.graph) else ""


def _trains(node: onnx.NodeProto, case: Case) -> bool:
    """Whether `node` is a Dropout that drops something."""
    if node.op_type != "Dropout" or len(node.input) < 3:
        return False
    ratio, training = (case.inputs.get(name) for name in node.input[1:3])
    return bool(np.any(training)) and (ratio is None or bool(np.any(ratio)))


def with_constants(case: Case) -> onnx.ModelProto:
    """The model of `case` with all tensors among its inputs but the first as initializers."""
    proto = onnx.ModelProto()
    proto.CopyFrom(case.proto)
    proto.ir_version = max(proto.ir_version, 4)  # before, initializers are inputs as well
    graph = proto.graph
    for value in list(graph.input)[1:]:
        array = case.inputs[value.name]
        if value.type.HasField("tensor_type") and isinstance(array, np.ndarray):
            graph.initializer.append(numpy_helper.from_array(array, value.name))
            graph.input.remove(value)
    return proto


def answer(case: Case, proto: onnx.ModelProto) -> Answer:
    """Through the front door, the compiler, the verifier and the executor."""
    inputs = {value.name: case.inputs[value.name] for value in proto.graph.input}
    try:
        made = backend.prepare(proto, dtype="fp32")
        got = list(made.run(inputs))
        word = "host" if made.program(inputs).payloads else "native"
    except (CompilerError, ModelError) as why:
        return Answer("refused", str(why))
    except Exception as mistake:
        return Answer("crash", "".join(traceback.format_exception(mistake)))
    off = difference(got, case.expected, case)
    if not off:
        return Answer(word)
    there = by_runtime(case)
    if there is None or difference(got, there, case):
        return Answer("wrong", off)
    return Answer(word, judged=difference(there, case.expected, case) or off)


def by_runtime(case: Case) -> list[Array] | None:
    """What ONNX Runtime computes; None where it cannot."""
    try:
        values = run_reference(case.proto, case.inputs)
    except ModelError:
        return None
    return [values[value.name] for value in case.proto.graph.output]


def difference(got: Sequence[Value], wanted: Sequence[Value], case: Case) -> str:
    """How `got` differs from `wanted`; nothing where it does not."""
    for output, a, b in zip(case.proto.graph.output, got, wanted, strict=True):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{output.name}: {a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
        if not _close(a, b, case):
            wide = a.astype(np.float64), b.astype(np.float64)
            off = np.nanmax(np.abs(wide[0] - wide[1]), initial=0)
            return f"{output.name}: off by {off:.3g}, largest {np.nanmax(np.abs(wide[1])):.3g}"
    return ""


def _close(a: Array, b: Array, case: Case) -> bool:
    if a.dtype.kind in "OU":
        return bool((a == b).all())
    rtol, atol = case.rtol, case.atol
    wide = a.astype(np.float64), b.astype(np.float64)
    roundings = 4 * EPSILON.get(NAMES.get(a.dtype, ""), 0.0)  # two steps of a floating-point type
    rtol = max(rtol, roundings)
    return bool(np.allclose(*wide, rtol=rtol, atol=atol, equal_nan=True))


def text_of(rows: Sequence[Row]) -> str:
    """The table: totals, operator types, who was judged by ONNX Runtime, and every case."""
    kinds = sorted({row.operator for row in rows})
    lines = [
        _counts("all", rows),
        *(_counts(k, [r for r in rows if r.operator == k]) for k in kinds),
    ]
    columns = ("operator", "cases", *(f"{way} {word}" for way in WAYS for word in WORDS))
    title = f"ONNX's node tests (onnx {onnx.__version__}) on {ARCH.name}"
    judged = [
        f"{row.case}: {next(filter(None, whys))}"
        for row in rows
        if any(whys := [answer.judged for answer in row.answers])
    ]
    listed = [f"{row.case} {' '.join(answer.word for answer in row.answers)}" for row in rows]
    return "\n".join(
        [
            share(rows) + "\n",
            table(title, columns, lines).lstrip(),
            "\nONNX Runtime differs from what is expected, and is right here (case: by how much)\n",
            *judged,
            f"\nCases: {', '.join(WAYS)}\n",
            *sorted(listed),
            "",
        ]
    )


def share(rows: Sequence[Row]) -> str:
    """How many cases of deterministic inference are right, and how many operator types native."""
    asked = [row for row in rows if not row.left_out]
    lines = []
    for way, name in enumerate(WAYS):
        right = sum(row.answers[way].word in RIGHT for row in asked)
        lines.append(
            f"{name}: {right:,} of {len(asked):,} right ({right / max(1, len(asked)):.1%})"
        )
    kinds: dict[str, set[str]] = {}
    for row in asked:
        kinds.setdefault(row.operator, set()).update(answer.word for answer in row.answers)
    native = [kind for kind, words in kinds.items() if "native" in words]
    whole = [kind for kind, words in kinds.items() if words == {"native"}]
    gone = Counter(row.left_out for row in rows if row.left_out)
    return "\n".join(
        [
            "Deterministic inference",
            *lines,
            f"operator types with native cases: {len(native)} of {len(kinds)} "
            f"({len(native) / max(1, len(kinds)):.1%}); with none but native ones: {len(whole)}",
            f"left out: {'; '.join(f'{count}: {why}' for why, count in gone.most_common())}",
        ]
    )


def _counts(label: str, rows: Sequence[Row]) -> Sequence[object]:
    counted = [Counter(row.answers[way].word for row in rows) for way in range(len(WAYS))]
    return (label, len(rows), *(found[word] for found in counted for word in WORDS))


def floor() -> dict[str, tuple[str, ...]]:
    """The words of every case in the committed table."""
    lines = TABLE.read_text(encoding="utf-8").split("\nCases: ", 1)[1].splitlines()[1:]
    return {name: tuple(words) for name, *words in (line.split() for line in lines if line)}


def worse(rows: Iterable[Row], committed: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Cases that crash, are wrong, or have fallen below what is committed."""
    for found in rows:
        before = committed.get(found.case, ("refused",) * len(WAYS))
        for way, answered, was in zip(WAYS, found.answers, before, strict=True):
            if answered.word in BAD or WORDS.index(answered.word) > WORDS.index(was):
                yield f"{found.case} ({way}): {was} -> {answered.word}: {answered.why}"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the cases and print the table; exit code 1 where one is worse than the floor."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="cases whose names hold this")
    parser.add_argument("--check", action="store_true", help="compare with the table")
    parser.add_argument("--write", action="store_true", help="make the table anew")
    chosen = parser.parse_args(argv)
    rows = [row(case) for case in cases() if chosen.only in case.name]
    text = text_of(rows)
    print(text.split("\nCases: ", 1)[0] if not chosen.only else text)
    if chosen.write and not chosen.only:
        TABLE.write_text(text, encoding="utf-8")
    found = list(worse(rows, floor() if chosen.check else {}))
    print("\n".join(found), file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
