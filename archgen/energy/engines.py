"""Area of what computes: the array, the vector engine and those beside it, the scalar unit.

The one idea: arithmetic is counted as often as the file's rates ask for it. What takes a multiply
in one cycle has a multiplier; what takes four cycles has a quarter of one, shared with the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from archgen.energy.ranges import WHERE, Logic, Term, UncertainValue, sum_of
from archgen.energy.table import Figures, Operation, Sum
from simmodel.arch.base import ENTRIES, RateType
from simmodel.arch.element_types import COMPRESSED, MX_BITS, is_float, size_of
from simmodel.arch.record import Arch, LaneEngine, Matrix, ScalarCost, VectorCost

_STATIONARY, _MOVING = 2, 1
"""Registers of an operand that waits for its turn while another is in use, and of one that goes
through."""
_INTEGERS = ("int8", "uint8", "int16", "int32")
"""Element types that are computed with as integers."""


def matrix_terms(
    arch: Arch, name: str, matrix: Matrix, figures: Figures, logic: Logic
) -> Iterator[Term]:
    """The array of this name: its cells, and what it applies on the way out."""
    at, own = ("matrix", "") if name == "matrix" else (f"engines.{name}", f"{name}: ")

    def fields(*names: str) -> tuple[str, ...]:
        return (*(f"{at}.{each}" for each in names), *WHERE)

    count = matrix.cells * matrix.units * arch.core_count
    # A rate below 1 means that narrower cells join for a product, one above 1 that they split. One
    # array serves all types, so it is built for the one that takes most.
    most, dtype = max(
        (
            (cell_of(matrix, kind, figures) * rate * multiplier_share(each), each)
            for each, rate in matrix.rate.items()
            for kind in (dense_type(each),)
        ),
        default=(0.0, ""),
    )
    one = logic.datapath(most).unless(arch.energy.area.mac)
    said = "energy.area.mac" if one.stated else f"built for {dtype}"
    yield Term(
        "mac", f"{own}cells",
        fields("rows", "cols", "depth", "units", "kind", "dataflow", "rate"),
        f"{count} cells x {1e6 * one.value:.4g} um2 ({said})", one.times(count),
    )  # fmt: skip
    lanes = matrix.cols * matrix.units * arch.core_count
    costs = figures.area.arithmetic
    applied = {
        "bias": costs.add["int32"],
        "clip": 2 * costs.add["int32"],
        "requantize": costs.multiply["int32"] + costs.add["int32"],
        "table": logic.muxes(8 * ENTRIES),
        "add": costs.multiply["int32"] + 2 * costs.add["int32"],
    }
    for each in matrix.writeback:
        one = logic.datapath(applied[each])
        yield Term(
            "mac", f"{own}write-back: {each}", fields("writeback", "cols", "units"),
            f"{lanes} columns x {1e6 * one.value:.4g} um2", one.times(lanes),
        )  # fmt: skip


def dense_type(dtype: RateType) -> Operation:
    """The type of the products that are made, by sparse weights half as many as are counted; of
    blocks the one whose multipliers and sums are scaled."""
    base = "fp16" if dtype in MX_BITS else COMPRESSED.get(dtype, dtype)
    kind: Operation = base  # type: ignore[assignment]
    return kind


def multiplier_share(dtype: RateType) -> float:
    """The part of a multiplier of its `dense_type` that a product needs: of sparse weights every
    other one is made, of microscaled ones a number has fewer digits, of blocks both factors."""
    if dtype in MX_BITS:
        return (_DIGITS[dtype] / _DIGITS["fp16"]) ** 2
    base, _, form = dtype.partition("_")
    return _DIGITS[form] / _DIGITS[base] if form in MX_BITS else 1 / 2 if form else 1.0


_DIGITS = {"fp16": 11, "bf16": 8, "mxfp8": 4, "mxfp6": 4, "mxfp4": 2, "mxint8": 7, "bfp8": 7}


def cell_of(matrix: Matrix, dtype: Operation, figures: Figures) -> float:
    """um2 at 45 nm of a multiply-accumulate of the array and its registers.

    In a systolic array each cell passes its operands and its sum on; the products of a cube share
    inputs and one sum. Activations of int16 meet weights of int8: two products of int8.
    """
    area, kind = figures.area, sum_of(dtype)
    other: Operation = "int8" if dtype == "int16" else dtype
    data, weight, result = (8.0 * size_of(name) for name in (dtype, other, kind))
    if matrix.kind == "cube":
        bits = weight * _STATIONARY + data * _MOVING / matrix.cols + result / matrix.depth
    elif matrix.dataflow == "output-stationary":
        bits = (data + weight) * _MOVING + 2 * result
    else:
        stays, goes = (data, weight) if matrix.dataflow == "input-stationary" else (weight, data)
        bits = stays * _STATIONARY + goes * _MOVING + result
    arithmetic = area.arithmetic.multiply[other] * data / weight + area.arithmetic.add[kind]
    return arithmetic + bits * area.register_.bit


def vector_terms(arch: Arch, figures: Figures, logic: Logic) -> Iterator[Term]:
    """The vector engine: lanes, converters, registers of sums, what walks its operands; and what
    engines beside it have of these."""
    vector = arch.vector
    units = vector.units * arch.core_count
    count = vector.lanes * units
    if (stated := arch.energy.area.lane) is not None:
        fields = ("vector.lanes", "vector.units", "vector.types", *WHERE)
        text = f"{count} lanes x {1e6 * stated:.4g} um2 (energy.area.lane)"
        yield Term("vector", "lanes", fields, text, UncertainValue.exact(stated).times(count))
    else:
        yield from _lanes(vector, units, ("vector", ""), figures, logic)
    for name, engine in arch.function_engines.items():
        own = f"engines.{name}", f"{name}: "
        yield from _lanes(engine, arch.core_count, own, figures, logic)
        yield Term(
            "vector", f"{name}: addresses", (f"engines.{name}.rank", *WHERE),
            f"{arch.core_count} engines x {3 * engine.rank} dimensions of three operands",
            logic.control(logic.walkers(3 * engine.rank * arch.core_count)),
        )  # fmt: skip
    if vector.product_rows:
        bits = 32 * vector.product_rows * count
        text = f"{count} lanes x {vector.product_rows} rows x 32 bits"
        registers = logic.control(logic.registers(bits))
        yield Term(
            "vector", "sums", ("vector.product_rows", "vector.lanes", *WHERE), text, registers
        )
    if vector.table is not None:
        bits = 8 * ENTRIES
        made = logic.control(logic.registers(bits * units) + logic.muxes(bits * count))
        text = f"{units} engines x {bits} bits, and {count} lanes that choose of them"
        yield Term("vector", "tables", ("vector.table", "vector.lanes", *WHERE), text, made)
    if chains := arch.isa.chains:
        costs, bit = figures.area.arithmetic, figures.area.register_.bit
        seconds = sorted({chain.rpartition("_")[2] for chain in chains})
        parts = [(costs.multiply if each == "mul" else costs.add)["fp32"] for each in seconds]
        chained = logic.datapath(32 * bit + sum(parts)).times(count)
        text = f"{count} lanes x 32 bits and {' and '.join(seconds)}"
        yield Term("vector", "chains", ("isa.chains", "vector.lanes", *WHERE), text, chained)
    walked = 3 * vector.rank + (2 if vector.window else 0)
    yield Term(
        "vector", "addresses", ("vector.rank", "vector.window", "vector.units", *WHERE),
        f"{units} engines x {walked} dimensions of three operands and of windows",
        logic.control(logic.walkers(walked * units)),
    )  # fmt: skip


def _lanes(
    engine: LaneEngine, units: int, named: tuple[str, str], figures: Figures, logic: Logic
) -> Iterator[Term]:
    """Lanes of 4 bytes of `units` engines, those that only narrower elements use, and what converts
    between types; `named` by the section of the file, and what begins the names of terms."""
    section, first = named
    narrow = engine.lanes - min(engine.lanes, engine.wide_lanes or engine.lanes)
    sizes = ("lanes", "units", "types") if section == "vector" else ("lanes", "types")
    for full, lanes in ((True, engine.lanes - narrow), (False, narrow)):
        if not lanes:
            continue
        own, text = _lane(engine.types, engine.cost, full, figures)
        one, count = logic.datapath(own), lanes * units
        fields = (f"{section}.{name}" for name in (*sizes, "wide_lanes", "cost.*"))
        yield Term(
            "vector", f"{first}lanes" if full else f"{first}narrow lanes", (*fields, *WHERE),
            f"{count} lanes x {1e6 * one.value:.4g} um2 ({text})", one.times(count),
        )  # fmt: skip
    casts, count = len(engine.types) - 1, engine.lanes * units
    made = logic.control(logic.gates(figures.area.converter.gates * casts * count))
    text = f"{count} lanes x {casts} other types x {figures.area.converter.gates:g} gates"
    fields = (f"{section}.{name}" for name in sizes)
    yield Term("vector", f"{first}converters", (*fields, *WHERE), text, made)


def _lane(
    types: tuple[str, ...], cost: VectorCost | ScalarCost, full: bool, figures: Figures
) -> tuple[float, str]:
    """um2 at 45 nm of a lane, and its arithmetic in words.

    It has as many multipliers and adders as the most demanding kind of operation keeps busy, given
    the cycles that it may take.
    """
    cycles = {kind: getattr(cost, kind) for kind in VectorCost.model_fields}
    needed = [
        max(getattr(getattr(figures.vector, kind), part) / n for kind, n in cycles.items())
        for part in ("multiply", "add")
    ]
    integers = any(name in _INTEGERS for name in types)
    costs, register = figures.area.arithmetic, figures.area.register_.bit
    made, said = 3 * register * (32 if full else 16), []
    if any(map(is_float, types)) or not integers:
        multiplies, adds = needed
        kind: Operation = "fp32" if full else "fp16"
        share = costs.multiply["fp16"] / costs.multiply["fp32"]
        adder = costs.add["fp32"] * (1 if full else share)
        made += multiplies * costs.multiply[kind] + adds * adder
        said.append(f"{multiplies:.3g} multipliers and {adds:.3g} adders of {kind}")
    if integers:
        whole: Operation = "int32" if full else "int16"
        # Divisions of integers are done in floating point where there is any.
        multiplies, adds = (1 / cost.multiply, 1 / cost.simple) if said else needed
        made += multiplies * costs.multiply[whole] + adds * costs.add["int32"]
        said.append(f"{multiplies:.3g} and {adds:.3g} of {whole}")
    return made, ", ".join(said)


def vector_type(arch: Arch) -> Sum:
    """The type in which the vector engine computes: fp32, or int32 where it knows integers only."""
    return "fp32" if any(is_float(name) for name in arch.vector.types) else "int32"


def scalar_terms(arch: Arch, figures: Figures, logic: Logic) -> Iterator[Term]:
    """The scalar unit: bookkeeping always, arithmetic where the file gives it types."""
    gates = figures.area.scalar.gates
    yield Term(
        "scalar", "bookkeeping", WHERE,
        f"{arch.core_count} cores x {gates:g} gates",
        logic.control(logic.gates(gates * arch.core_count)),
    )  # fmt: skip
    if arch.scalar.types:
        own, text = _lane(arch.scalar.types, arch.scalar.cost, True, figures)
        own += logic.gates(figures.area.converter.gates * len(arch.scalar.types))
        one = logic.datapath(own)
        yield Term(
            "scalar", "arithmetic", ("scalar.types", "scalar.cost.*", *WHERE),
            f"{arch.core_count} cores x {1e6 * one.value:.4g} um2 ({text}, "
            f"{len(arch.scalar.types)} types)",
            one.times(arch.core_count),
        )  # fmt: skip
