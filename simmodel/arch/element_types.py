"""Names of element types: sizes, and which holds, widens, sums or multiplies which.

A name is the only thing that travels: architecture files, programs and frames say `int8` or `fp16`;
everything else is looked up here, and what numpy calls it in `simmodel.arch.dtype`. Types below a
byte, and of eight bits beside int8, are what memories hold: engines widen them on the way
(`vector.types`, `widens` of a copy engine). Some are types of ports alone: in memory such numbers
lie in a larger type that holds all of them.
"""

from __future__ import annotations

SPARSE = {f"{base}_2of4": base for base in ("int8", "fp16", "bf16")}
"""Types of weights of which at most two in four along the reduction are not 0, and the types of
what is left of them: of eight, memory holds four and a byte of their places."""
MX_BITS = {"mxfp8": 8, "mxfp6": 6, "mxfp4": 4, "mxint8": 8, "bfp8": 8}
"""Microscaling formats of the Open Compute Project and block floating point, and the bits of a
number (E4M3, E2M3, E2M1, int8, int8): those of a block along the reduction share a power of two,
which has a byte. Each is a type of its own too, whose element in memory is a block."""
MX_BLOCK = dict.fromkeys(MX_BITS, 32) | {"bfp8": 16}
"""Numbers in a block of each."""
MX = {f"{base}_{kind}": base for kind in MX_BITS for base in ("fp16", "bf16")}
"""Types of weights in such a format, and the types that the array multiplies them as."""
WINOGRAD = {f"{base}_winograd{n}": (base, n) for base in ("int8", "int16") for n in (2, 4)}
"""Types whose rate is that of 3 x 3 convolutions by Winograd: of operands of which type, and lines
and columns of outputs of a tile. Of integers the transforms are exact, and sums those of all
products; floating-point numbers they round, so that these have none."""
COMPRESSED = SPARSE | MX
"""Types of weights that the array itself makes numbers of, and of which."""
SIZES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8,
    "uint64": 8, "fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8, "int4": 1, "uint4": 1, "fp8e4m3": 1,
    "fp8e5m2": 1, "int2": 1, "uint2": 1, "fp8e4m3fnuz": 1, "fp8e5m2fnuz": 1, "fp8e8m0": 1,
    "fp4e2m1": 1, "int8_2of4": 5, "fp16_2of4": 9, "bf16_2of4": 9,
    **{
        name: MX_BITS[kind] * MX_BLOCK[kind] // 8 + 1
        for name in (*MX, *MX_BITS) for kind in (name.rpartition("_")[2],)
    },
}  # fmt: skip
"""Bytes of one element; of types of which several lie together, of those: 1 of types below a
byte."""
FLOATS = frozenset(name for name in SIZES if name.startswith(("fp", "bf16", *MX_BITS)))
EPSILON = {
    "fp16": 2.0**-11, "bf16": 2.0**-8, "fp32": 2.0**-24, "fp64": 2.0**-53,
    "fp8e4m3": 2.0**-4, "fp8e5m2": 2.0**-3, "fp8e4m3fnuz": 2.0**-4, "fp8e5m2fnuz": 2.0**-3,
    "fp8e8m0": 2.0**-1, "fp4e2m1": 2.0**-2,
}  # fmt: skip
"""Unit round-off of each floating-point type."""
PACKED = frozenset({"int4", "uint4"})
"""Types of which memory holds two elements in a byte, the first in its lower half."""
PORTS = frozenset({"int2", "uint2", "fp8e4m3fnuz", "fp8e5m2fnuz", "fp8e8m0", "fp4e2m1"})
"""Types of inputs and outputs alone: no memory holds them."""
STORED = frozenset({"int4", "uint4", "fp8e4m3", "fp8e5m2"})
"""Types that are only stored: no operator's result is one of them."""
WIDER = STORED | PORTS
"""Types whose numbers an operator computes with in a larger one."""
_REAL = ("fp16", "bf16", "fp32")
_WIDE = ("int16", "int32", *_REAL)
_HELD: dict[str, tuple[str, ...]] = {
    "int4": ("int8", *_WIDE), "uint4": ("int8", "uint8", *_WIDE), "int8": _WIDE, "uint8": _WIDE,
    "int2": ("int8", *_WIDE), "uint2": ("int8", "uint8", *_WIDE), "fp8e4m3": _REAL,
    "fp8e5m2": _REAL, "fp8e4m3fnuz": _REAL, "fp8e5m2fnuz": _REAL, "fp8e8m0": ("bf16", "fp32"),
    "fp4e2m1": _REAL,
}  # fmt: skip


def size_of(name: str) -> int:
    """Bytes of one element of type `name`, or of the `per_item` that lie together."""
    return SIZES[name]


def per_item(name: str) -> int:
    """Elements of type `name` that lie together in `size_of` bytes of memory."""
    if name in MX:
        return MX_BLOCK[name.partition("_")[2]]
    return 2 if name in PACKED else 8 if name in SPARSE else 1


def per_block(name: str) -> int:
    """Numbers in each element of type `name`: of a microscaling format those of a block."""
    return MX_BLOCK.get(name, 1)


def grain_of(name: str) -> int:
    """What addresses of elements of type `name` are multiples of: a block begins at any byte."""
    return SIZES[name] if per_block(name) == 1 else 1


def bytes_for(name: str, elements: int) -> int:
    """Bytes of so many contiguous elements of type `name`."""
    return -(-elements * SIZES[name] // per_item(name))


def widened(name: str) -> tuple[str, ...]:
    """Larger types that hold every number of type `name`, the smallest first."""
    return _HELD.get(name, ())


def is_float(name: str) -> bool:
    """Whether `name` is a floating-point type."""
    return name in FLOATS


def accumulator_of(name: str) -> str:
    """The type in which a matrix engine accumulates products of type `name`."""
    return "fp32" if is_float(name) else "int32"


def product_type(name: str, weights: str = "") -> str:
    """The type whose matrix rate applies to products with a left operand of type `name`: signed and
    unsigned share one, and compressed `weights` have their own."""
    name = weights if weights in COMPRESSED else name
    return {"uint8": "int8", "uint16": "int16"}.get(name, name)


def winograd_gain(name: str) -> float:
    """Multiply-accumulates for each product that is made of type `name`: 1 but for Winograd, where
    (n + 2) x (n + 2) products are 9 positions of n x n outputs."""
    _, outputs = WINOGRAD.get(name, (name, 1))
    return 9 * outputs**2 / (outputs + 2) ** 2


def products_made(name: str, macs: int) -> tuple[str, int]:
    """Of which type how many products are made for `macs` multiply-accumulates of type `name`."""
    base, outputs = WINOGRAD.get(name, (name, 1))
    return base, -(-macs * (outputs + 2) ** 2 // (9 * outputs**2))


def multiplies(left: str, right: str) -> bool:
    """Whether engines have products of these types: of one, or of 16-bit integers by 8-bit ones."""
    kinds = product_type(left), product_type(COMPRESSED.get(right, right))
    return kinds[0] == kinds[1] or kinds == ("int16", "int8")
