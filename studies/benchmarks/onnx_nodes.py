"""ONNX's own node tests, compiled and executed: a floor that only rises.

    python studies/benchmarks/onnx_nodes.py [--only TEXT] [--check | --write]

Every case that the package `onnx` ships goes through compiler, verifier and executor on the machine
of `archgen.backend`, twice: `plain` as it is, and `constant` with all inputs but the first as
initializers, as weights, axes and scales are in networks. What becomes of it is one of

    native     right, on the machine's engines alone
    host       right, with calls to the host
    refused    turned away in words before anything ran
    crash      an error of archgen's own
    wrong      other numbers than expected, or another shape or type

A result is right within the tolerance that the case gives, or two roundings of its element type;
of Fourier transforms, in which large values cancel, of the largest value.
Where it is not, ONNX Runtime is asked: a result that agrees with it is right too, and listed.
`--check` compares with the committed table, `onnx_nodes.txt`, and ends with 1 where a case has got
worse, crashes or is wrong; `--write` makes the table anew. About three minutes of one core.
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
from tempfile import TemporaryDirectory
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from tables import table

from archgen.backend.base import DEFAULT
from archgen.check.reference import run_node, run_reference
from archgen.models.load import ModelError, open_model
from archgen.schema import load_arch
from compiler.driver import CompileOptions, compile_model
from compiler.effort import stages_for
from compiler.errors import CompilerError
from compiler.fuse.partition import Unfused
from compiler.stages import Stages
from simmodel.functional import run
from simmodel.verify import verify

FOLDER = Path(__file__).parent
TABLE = FOLDER / "onnx_nodes.txt"
ARCH = load_arch(str(DEFAULT))
OPTIONS = CompileOptions("fp32", stages=stages_for(0, Stages(partition=Unfused())))
WAYS = ("plain", "constant")
WORDS = ("native", "host", "refused", "crash", "wrong")
"""From best to worst."""
BAD = ("crash", "wrong")
TRANSFORMS = ("DFT", "STFT")

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
    with warnings.catch_warnings(), TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        path = Path(folder) / f"{case.name}.onnx"
        models = case.proto, with_constants(case)
        return Row(case.name, case.operator, tuple(answer(case, m, path) for m in models))


def with_constants(case: Case) -> onnx.ModelProto:
    """The model of `case` with all tensors among its inputs but the first as initializers."""
    proto = onnx.ModelProto.FromString(case.proto.SerializeToString())
    graph = proto.graph
    for value in list(graph.input)[1:]:
        array = case.inputs[value.name]
        if value.type.HasField("tensor_type") and isinstance(array, np.ndarray):
            graph.initializer.append(numpy_helper.from_array(array, value.name))
            graph.input.remove(value)
    return proto


def answer(case: Case, proto: onnx.ModelProto, path: Path) -> Answer:
    """Through the front door, the compiler, the verifier and the executor."""
    try:
        path.write_bytes(proto.SerializeToString())
        model = open_model(path).proto
        bent = _bent(case, model)
        if bent:
            return Answer("refused", bent)
        made = compile_model(model, ARCH, OPTIONS)
        verify(made.program, ARCH)
        outputs = run(made.program, case.inputs, ARCH, run_node).outputs
    except (CompilerError, ModelError) as why:
        return Answer("refused", str(why))
    except Exception as mistake:
        return Answer("crash", "".join(traceback.format_exception(mistake)))
    word = "host" if made.host else "native"
    got = [outputs[value.name] for value in proto.graph.output]
    off = difference(got, case.expected, case)
    if not off:
        return Answer(word)
    there = by_runtime(case)
    if there is None or difference(got, there, case):
        return Answer("wrong", off)
    return Answer(word, judged=difference(there, case.expected, case) or off)


def _bent(case: Case, proto: onnx.ModelProto) -> str:
    """What opening made of shapes: an extent of 0 is taken for free."""
    for value in proto.graph.input:
        shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        given = np.shape(case.inputs[value.name])
        if shape != given:
            return f"input {value.name} of shape {given} is opened as {shape}"
    return ""


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
    if "float" in a.dtype.name:  # of ml_dtypes' types of kind V some are integers
        roundings = 2 * float(ml_dtypes.finfo(a.dtype).eps)
        rtol = max(rtol, roundings)
        if case.operator in TRANSFORMS:
            atol = max(atol, roundings * float(np.abs(wide[1]).max(initial=0)))
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
            table(title, columns, lines).lstrip(),
            "\nONNX Runtime differs from what is expected, and is right here (case: by how much)\n",
            *judged,
            f"\nCases: {', '.join(WAYS)}\n",
            *sorted(listed),
            "",
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
