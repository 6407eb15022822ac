"""Building blocks of instruction contracts: rules between operands, with messages.

Every instruction states in `Instruction.contract` how its operands must relate: ranks, matching
extents, windows inside of their input, compatible element types, parameters in range. If the
contract holds, `execute` neither fails nor leaves the bytes that the operands name. Each breach is
a rule and a message with the actual and the expected value:

    shape      ranks and extents
    type       element types
    parameter  everything that is a number
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from simmodel.arch.dtype import limits
from simmodel.arch.element_types import (
    COMPRESSED,
    SIZES,
    accumulator_of,
    is_float,
    multiplies,
    per_block,
)
from simmodel.isa.region import Address, Operand, Terms

Breaches = Iterator[tuple[str, str]]
"""Rule and message of each breach."""
LIMIT = 2**62
"""Limit of addresses and of numbers in them: arithmetic is in 64 bits."""
WALKED = 2**40
"""Limit of the bytes that one operand walks, repetitions included."""
RANK = 16
"""Most dimensions of an operand, and most loops around an instruction: bulk execution has one
dimension for each, and arrays have 64 at most."""


def sound(operand: Operand) -> Breaches:
    """Errors in a single operand."""
    shape, strides = operand.shape, operand.strides
    if operand.dtype not in SIZES:
        yield "type", f"no element type {operand.dtype!r}"
        return
    if len(shape) != len(strides) or min(shape, default=1) < 1:
        yield "shape", f"shape {shape} with strides {strides}, expected a stride for each extent"
    elif len(shape) > RANK or math.prod(shape) * SIZES[operand.dtype] >= WALKED:
        yield "shape", f"shape {shape}, expected at most {RANK} dimensions and {WALKED} bytes"
    if operand.per_item > 1:  # rows of elements below a byte begin at whole bytes
        moving = [s for n, s in zip(shape, strides, strict=False) if n > 1]
        if moving.count(1) > 1 or any(s != 1 and s % operand.per_item for s in moving):
            known = "even ones" if operand.per_item == 2 else f"multiples of {operand.per_item}"
            yield "shape", f"strides {strides} of {operand.dtype}, expected one of 1 and {known}"
    if any(abs(stride) >= LIMIT for stride in strides):
        yield "range", f"strides {strides}, expected less than {LIMIT}"
    ring = operand.address.ring
    if ring is not None and ring.slots < 1:
        yield "shape", f"a ring of {ring.slots} slots, expected at least 1"
    scale, zero = operand.scale, operand.zero
    if scale is not None and not 0 < scale < math.inf:
        yield "parameter", f"scale {scale}, expected a positive number"
    real = is_float(operand.dtype) or operand.dtype in COMPRESSED
    low, high = (0, 0) if real else limits(operand.dtype)
    if not low <= zero <= high:
        yield "parameter", f"zero point {zero} of {operand.dtype}, expected {low} .. {high}"


def reach(address: Address, loops: Terms) -> int:
    """Upper bound of all numbers in an address inside of `loops`, with their counts."""
    ring, terms, fixed = address.ring, address.terms, abs(address.base)
    if ring is None and not terms:
        return fixed
    counts = dict(loops)
    if ring is not None:
        terms = (*terms, *ring.terms)
        fixed += abs(ring.offset) + (1 + abs(ring.pitch)) * abs(ring.slots)
    return fixed + sum(abs(factor) * counts.get(name, 1) for name, factor in terms)


def shaped(operands: Mapping[str, Operand | None], axes: Mapping[str, str]) -> Breaches:
    """Operands whose dimensions do not agree.

    Args:
        operands: by name; None: absent.
        axes: for each, its dimensions, a letter each; the same letter means the same extent.
    """
    known: dict[str, tuple[int, str]] = {}
    for name, letters in axes.items():
        operand = operands[name]
        if operand is None:
            continue
        if len(operand.shape) != len(letters):
            wanted = ", ".join(letters)
            yield "shape", f"{name} has {len(operand.shape)} dimensions, expected [{wanted}]"
            continue
        for letter, extent in zip(letters, operand.shape, strict=True):
            expected, owner = known.setdefault(letter, (extent, name))
            if extent != expected:
                yield "shape", f"{name} has {letter} = {extent}, expected {expected} as {owner} has"


def alike(dst: Operand, **operands: Operand | None) -> Breaches:
    """Operands that do not have the shape of `dst`."""
    for name, operand in operands.items():
        if operand is not None and operand.shape != dst.shape:
            yield "shape", f"{name} has shape {operand.shape}, expected {dst.shape} as dst"


def multiplied(a: Operand, w: Operand, **sums: Operand | None) -> Breaches:
    """Factors of types that nothing multiplies, and `sums` that are not of the accumulator's."""
    if w.dtype in COMPRESSED and w.shape[-2] % w.per_item:
        known = f"expected multiples of {w.per_item}"
        yield "shape", f"w has {w.shape[-2]} channels of {w.dtype}, {known}"
    if not multiplies(a.dtype, w.dtype):
        yield "type", f"a is {a.dtype} and w {w.dtype}, expected one type, or int16 and int8"
    for name, operand in sums.items():
        yield from typed(name, operand, accumulator_of(a.dtype))


def single(dtype: str) -> Breaches:
    """A block type where numbers are worked on one by one."""
    if per_block(dtype) > 1:
        yield "type", f"blocks of {dtype}, which only a matrix product multiplies"


def typed(name: str, operand: Operand | None, *expected: str) -> Breaches:
    """An operand whose element type is none of those `expected`."""
    if operand is not None and operand.dtype not in expected:
        yield "type", f"{name} is {operand.dtype}, expected {' or '.join(expected)}"


def windowed(
    extents: Sequence[int], rows_cols: Sequence[int], kernel: Sequence[int],
    steps: Sequence[Sequence[int]],
) -> Breaches:  # fmt: skip
    """Windows with steps below 1, or that reach beyond their input.

    Args:
        extents: of the input in each direction.
        rows_cols: windows in each direction.
        kernel: positions of a window in each direction.
        steps: stride and dilation, in each direction.
    """
    for name, pair in zip(("kernel", "stride", "dilation"), (kernel, *steps), strict=True):
        if len(pair) != 2 or min(pair) < 1:
            yield "parameter", f"{name} {tuple(pair)}, expected two numbers of at least 1"
            return
    stride, dilation = steps
    for axis in (0, 1):
        window = (kernel[axis] - 1) * dilation[axis] + 1
        need = (rows_cols[axis] - 1) * stride[axis] + window
        if extents[axis] < need:
            yield "shape", f"input extent {extents[axis]} is below the {need} needed by the windows"


def distinct(operand: Operand) -> Breaches:
    """A result of which two elements share a byte: the result would depend on their order."""
    if shares_bytes(operand, repeated=True):
        yield "shape", f"elements of the result share bytes: strides {operand.strides}"


def shares_bytes(operand: Operand, *, repeated: bool = False) -> bool:
    """Whether two elements may share a byte; with `repeated`, along a stride of 0 as well."""
    covered = operand.unit
    dims = zip(operand.strides, operand.shape, strict=True)
    for stride, extent in sorted((abs(s), n) for s, n in dims if n > 1 and (s or repeated)):
        if stride < covered:
            return True
        covered += (extent - 1) * stride
    return False


def storable(name: str, value: float, dtype: str) -> Breaches:
    """A raw value that `dtype` cannot represent."""
    if per_block(dtype) > 1 and value != 0:
        yield "parameter", f"{name} {value} of {dtype}, expected 0"
    if is_float(dtype):
        return
    low, high = limits(dtype)
    if not (low <= value <= high and value == int(value)):
        yield "parameter", f"{name} {value}, expected a whole number in {low} .. {high} ({dtype})"


def ordered(low: float, high: float) -> Breaches:
    """An empty clip interval."""
    if not low <= high:
        yield "parameter", f"clip from {low} to {high}, expected low <= high"


def check_function(function: str, table: Collection[str]) -> Breaches:
    """A function that is not in its table."""
    if function not in table:
        yield "parameter", f"no function {function!r}; there are {', '.join(table)}"
