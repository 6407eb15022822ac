"""The page of operators: where each operator of ONNX runs, for each kind of machine, and why.

    python docs/operators.py            writes docs/operators.md anew; some minutes of one core

The one idea: words come from compilations. Of each operator type the first of ONNX's own node
tests, those in float32 before others, is compiled for a machine of each kind with all inputs but
the first as constants, as they are in networks.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "studies" / "benchmarks"))

from onnx_nodes import Case, cases, with_constants  # noqa: E402

from archgen.api import prepared_for  # noqa: E402
from archgen.backend import DEFAULT, refuse  # noqa: E402
from archgen.models.load import ModelError, SourceModel  # noqa: E402
from archgen.schema import load_arch  # noqa: E402
from compiler.api import CompilerError, Undecided  # noqa: E402
from compiler.context import CompileOptions  # noqa: E402
from compiler.frontend.operators import attention  # noqa: E402
from compiler.frontend.operators.functions import DEFINED  # noqa: E402
from compiler.frontend.reference_types import operators_of_runtime, outside  # noqa: E402
from compiler.options import Stages, stages_for  # noqa: E402
from compiler.pipeline import compile_model  # noqa: E402
from compiler.schedule.fusion.partition import Unfused  # noqa: E402

PAGE = ROOT / "docs" / "operators.md"
MACHINES = {
    "fp32": (str(DEFAULT), "fp32"),
    "fp16": ("ascend-310-like", "fp16"),
    "bf16": ("tpu-v3-like", "bf16"),
    "int8": ("soma-edge", "int8"),
}
"""Kind of machine -> one of that kind, and the element type of networks on it."""
_LONGEST = 110
OPTIONS = stages_for(0, Stages(partition=Unfused()))


@dataclass(frozen=True)
class Verdict:
    """Where a case runs on one machine, and why not on its engines."""

    word: str
    why: str = ""


def verdict(case: Case, machine: str) -> Verdict:
    """What becomes of `case` on the machine of a kind."""
    model = with_constants(case)
    try:
        return _compiled(case, model, machine)
    except Undecided as why:
        return Verdict("constant" if _folds(case, model) else "refused", _short(why, case))
    except (CompilerError, ModelError) as why:
        return Verdict("refused", _short(why, case))


def _folds(case: Case, model: onnx.ModelProto) -> bool:
    """Whether the model of `case` is computed while compiling where its inputs are constants."""
    for value in model.graph.input:
        array = case.inputs[value.name]
        model.graph.initializer.append(numpy_helper.from_array(array, value.name))
    del model.graph.input[:]
    try:
        return _compiled(case, model, "fp32").word == "native"
    except (CompilerError, ModelError):
        return False


def _compiled(case: Case, proto: onnx.ModelProto, machine: str) -> Verdict:
    """The same of a model of the case; raises what refuses it."""
    name, dtype = MACHINES[machine]
    arch = load_arch(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refuse(proto)
        model, _ = prepared_for(SourceModel(case.name, proto), arch, dtype)
        made = compile_model(model.proto, arch, CompileOptions(dtype, stages=OPTIONS))
    if not made.host:
        return Verdict("native")
    return Verdict("host", _short(made.host[0].reason, case))


def _short(reason: object, case: Case) -> str:
    """What is behind the node in a reason, on one line that a table has room for."""
    line = " ".join(str(reason).replace(case.name, "it").replace("|", "/").split())
    line = re.sub(r"^.*?node '[^']*' \([^)]*\):? ?", "", line)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 4]} ..."


def representatives(known: Iterable[Case]) -> dict[str, Case]:
    """Operator -> the case that stands for it."""
    found: dict[str, Case] = {}
    for case in sorted(known, key=_rank):
        if len(case.proto.graph.node) == 1:
            found.setdefault(case.operator, case)
    return found


def _rank(case: Case) -> tuple[bool, str]:
    first = next(iter(case.inputs.values()), None)
    return not (isinstance(first, np.ndarray) and first.dtype == np.float32), case.name


def operators() -> list[str]:
    """Operators of ONNX's own domain, as the newest operator set has them."""
    newest = {s.name: s for s in onnx.defs.get_all_schemas() if s.domain == ""}
    return sorted(name for name, schema in newest.items() if not schema.deprecated)


def line(operator: str, chosen: Mapping[str, Case]) -> str:
    """The row of an operator."""
    if operator not in chosen:
        why = outside(operator, "") or "ONNX has no test of it"
        return f"| {operator} |{' - |' * len(MACHINES)} {why} |"
    found = [verdict(chosen[operator], machine) for machine in MACHINES]
    why = next((each.why for each in found if each.why), "")
    return f"| {operator} | {' | '.join(each.word for each in found)} | {why} |"


def microsoft_table() -> str:
    """Operators of ONNX Runtime's own domain: those that are rewritten, and all others."""
    domain = "com.microsoft"
    known = operators_of_runtime()[domain]
    defined = {name.rpartition(".")[2] for name in DEFINED if name.startswith(domain)}
    rewritten = sorted(defined | {each.op_type for each in attention.ATTENTIONS.values()})
    others = sorted(known - set(rewritten))
    return (
        "Rewritten in operators of ONNX, and run where those run: "
        f"{', '.join(rewritten)}.\n\n"
        f"Left to ONNX Runtime on the host: {', '.join(others)}."
    )


HEAD = """# Operators

Where operators of ONNX run, by kind of machine. *native*: on the machine's engines alone; *host*:
in a call of the host, by ONNX Runtime, or by ONNX's own evaluator where that has no kernel;
*constant*: its numbers decide a shape, so it is computed while compiling, where these numbers are
known; *refused*: in words, before anything runs. Attributes and types may change that.

`python docs/operators.py` writes this page: of each operator one of ONNX's node tests is
compiled, with all inputs but the first as constants; the last column says why it is not native,
on the first machine on which it is not. An operator alone is in floats also on a machine of int8
products, unless the quantizer has a form for it; where the vector engine has no floats, it would
be on the host, and in a quantized network often in integers: Conv, ConvTranspose, MatMul and Gemm
(QDQ) by weights of 8 bits, of activations of 8 bits, or of 16 where `matrix.rate` has
[int16](model-your-architecture.md#matrix). Where numbers that decide a shape
are inputs of a model, [archgen.backend](backend.md) compiles them in. All cases, right or not:
`studies/benchmarks/onnx_nodes.py`.

"""


def page() -> str:
    """The whole page."""
    chosen = representatives(cases())
    kinds = [f"{kind} ({Path(name).stem})" for kind, (name, _) in MACHINES.items()]
    table = [
        f"| operator | {' | '.join(kinds)} | why not native |",
        f"|---|{'---|' * len(kinds)}---|",
        *(line(operator, chosen) for operator in operators()),
    ]
    return f"{HEAD}{chr(10).join(table)}\n\n## com.microsoft\n\n{microsoft_table()}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
