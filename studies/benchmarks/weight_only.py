"""What weights in few bits save: one token of a Llama-style layer, DRAM bytes and cycles.

    python studies/benchmarks/weight_only.py [--quick] [--execute] [--jobs N] [--only TEXT]

The zoo's decoder layer behind 512 tokens, the constant operand of each MatMul behind a
DequantizeLinear: int8 or fp8 with a scale for each channel, int4 in blocks of 32 along the
reduction. On the machine as it is shipped (`as it is`), and with int4 and fp8 among the types of
its vector engine (`reads them`); `as wide` compiles the same without keeping them narrow. `must` is
what the model says: weights, scales, and the cache of keys and values at the machine's two bytes.
Look at `x stored`, bytes of constants over those of weights and scales: 1.0 where the engine reads
the type, and `x must`, all bytes over `must`. `--quick`: hidden 512.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, version_converter
from tables import Case, Result, arguments, machines, run_all, table

from archgen.zoo.catalog import build
from compiler.api import with_all_numbers
from compiler.options import Stages
from compiler.target.narrow_weights import KeepNarrow
from simmodel.arch.dtype import pack
from simmodel.arch.record import Arch

MACHINE, PAST, BLOCK = "ascend-310-like", 512, 32
SIZES = {
    512: {"heads": 8, "groups": 2, "wide": 1408}, 2048: {"heads": 16, "groups": 4, "wide": 5632}
}  # fmt: skip
KINDS = {
    "int8": (TensorProto.INT8, np.int8, 127.0), "int4": (TensorProto.INT4, ml_dtypes.int4, 7.0),
    "fp8e4m3": (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn, 448.0),
}  # fmt: skip
COLUMNS = (
    "machine", "hidden", "weights", "", "k cycles", "DRAM MB", "weights MB", "x stored", "x must",
    "executed",
)  # fmt: skip


@dataclass(frozen=True)
class About:
    """What a case is about."""

    hidden: int
    kind: str
    variant: str
    weights: int
    """Bytes of weights and scales."""
    cache: int
    """Bytes of keys and values."""


def quantized(model: onnx.ModelProto, kind: str) -> int:
    """Put the constant operands of MatMuls behind DequantizeLinear, in place; bytes of all."""
    number, dtype, most = KINDS[kind]
    values = {i.name: i for i in model.graph.initializer}
    nodes, size = list(model.graph.node), 0
    for node in model.graph.node:
        weight = values.get(node.input[1]) if node.op_type == "MatMul" else None
        if weight is None:
            continue
        real = numpy_helper.to_array(weight)
        block = BLOCK if kind == "int4" else real.shape[0]
        parts = real.reshape(-1, block, real.shape[1])
        scales = (np.abs(parts).max(axis=1) / most).astype(np.float16).astype(np.float32)
        raw = _narrow(parts / scales[:, None], dtype).reshape(real.shape)
        bytes_ = pack(raw.reshape(-1), kind).tobytes()
        given = scales if kind == "int4" else scales[0]
        name = weight.name
        made = (helper.make_tensor(f"{name}.q", number, real.shape, bytes_, raw=True),
                numpy_helper.from_array(given, f"{name}.s"))  # fmt: skip
        model.graph.initializer.remove(weight)
        model.graph.initializer.extend(made)
        extra = {"axis": 0, "block_size": BLOCK} if kind == "int4" else {"axis": 1}
        nodes.insert(0, helper.make_node(
            "DequantizeLinear", [f"{name}.q", f"{name}.s"], [name], name=f"{name}.wide",
            **extra,  # type: ignore[arg-type]
        ))  # fmt: skip
        size += len(bytes_) + given.nbytes
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.ir_version = 10
    return size


def _narrow(steps: NDArray[np.float32], dtype: type) -> NDArray[np.generic]:
    """The nearest numbers of a type."""
    whole = dtype is not ml_dtypes.float8_e4m3fn
    made: NDArray[np.generic] = (np.rint(steps) if whole else steps).astype(dtype)
    return made


def reading(arch: Arch) -> Arch:
    """`arch` whose vector engine reads all types of this table."""
    types = tuple(dict.fromkeys((*arch.vector.types, *KINDS)))
    return arch.model_copy(update={"vector": arch.vector.model_copy(update={"types": types})})


def cases(folder: Path, sizes: Sequence[int]) -> Iterator[tuple[Case, About]]:
    """Each case and what it is about."""
    (arch,) = machines([MACHINE])
    wide = Stages(narrow=KeepNarrow(enabled=False))
    variants = (
        ("as wide", arch, wide), ("as it is", arch, Stages()),
        ("reads them", reading(arch), Stages()),
    )  # fmt: skip
    for hidden in sizes:
        shape = SIZES[hidden]
        cache = 2 * 2 * PAST * shape["groups"] * hidden // shape["heads"]
        options: dict[str, Any] = {"hidden": hidden, "sequence": 1, "past": PAST, **shape}
        for kind in KINDS:
            given = with_all_numbers(build("llama", **options))
            model = version_converter.convert_version(given, 21)
            weights = quantized(model, kind)
            path = folder / f"{kind}-{hidden}.onnx"
            onnx.save(model, path)
            for variant, machine, stages in variants:
                about = About(hidden, kind, variant, weights, cache)
                yield Case(machine, str(path), 1, stages, variant), about


def row(result: Result, about: About) -> Sequence[object]:
    """One line of the table."""
    found = result.figures
    head = (result.case.arch.name, about.hidden, about.kind, about.variant)
    if found is None:
        return (*head, None, None, None, None, None, result.reason)
    return (
        *head, round(found.cycles / 1e3, 1), round(found.dram_bytes / 1e6, 3),
        round(found.constant_bytes / 1e6, 3), round(found.constant_bytes / about.weights, 3),
        round(found.dram_bytes / (about.weights + about.cache), 3), result.matched,
    )  # fmt: skip


def main(given: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = arguments(__doc__, given)
    with tempfile.TemporaryDirectory() as folder:
        chosen = list(cases(Path(folder), [512] if options.quick else list(SIZES)))
        if options.only:
            chosen = [c for c in chosen if any(word in c[0].label for word in options.only)]
        results = run_all([case for case, _ in chosen], options)
        pairs = zip(results, chosen, strict=True)
        print(table("Weights in few bits", COLUMNS, [row(r, about) for r, (_, about) in pairs]))


if __name__ == "__main__":
    main()
