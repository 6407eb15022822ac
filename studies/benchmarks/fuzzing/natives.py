"""Operators that engines learned late: attention, places, gathers, scatters, truth values.

The one idea: what decides where a value is read from (an index, a grid, a mask) is sometimes a
constant, sometimes an input and sometimes computed, since compilers treat these three differently.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import TensorProto

from fuzzing.net import MICROSOFT, Net
from fuzzing.pointwise import broadcasts, float_code


def attention_operator(net: Net, x: str) -> str | None:
    """Attention as one operator: heads in groups, masks, causal, soft limits."""
    shape = net.shape(x)
    if len(shape) != 3:
        return None
    _, tokens, wide = shape
    groups = net.pick(1, 1, 2)
    heads, deep = groups * net.pick(1, 2, 3), net.pick(2, 3, 4, 8)
    made: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": groups}
    made |= net.pick({}, {"is_causal": 1}, {"softcap": 2.0}, {"scale": 0.25})
    q = net.op("MatMul", x, net.weight(wide, heads * deep))
    k, v = (net.op("MatMul", x, net.weight(wide, groups * deep)) for _ in "kv")
    mask: list[str] = []
    if net.maybe(0.4):
        seen = net.random.random((tokens, tokens)) < 0.7
        np.fill_diagonal(seen, True)
        values = seen if net.maybe(0.5) else np.where(seen, 0, -100).astype(net.real)
        mask = [net.const(values)]
    return net.op("Attention", q, k, v, *mask, **made)


def several_heads(net: Net, x: str) -> str | None:
    """ONNX Runtime's own attention over packed rows."""
    if len(net.shape(x)) != 3:
        return None
    wide, heads, deep = net.shape(x)[-1], net.pick(1, 2, 3), net.pick(4, 8)
    q, k, v = (net.op("MatMul", x, net.weight(wide, heads * deep)) for _ in "qkv")
    made = {"unidirectional": 1} if net.maybe(0.3) else {}
    return net.op("MultiHeadAttention", q, k, v, num_heads=heads, domain=MICROSOFT, **made)


def rotated(net: Net, x: str) -> str | None:
    """Heads turned by their position."""
    if len(net.shape(x)) != 3:
        return None
    batch, tokens, wide = net.shape(x)
    heads, deep = net.pick(1, 2), net.pick(4, 6, 8)
    rows = net.op("MatMul", x, net.weight(wide, heads * deep))
    angles = np.arange(tokens)[:, None] * 10.0 ** -np.arange(deep // 2)
    turns = [net.const(f(angles), net.real) for f in (np.cos, np.sin)]
    where = net.const(net.random.integers(0, tokens, (batch, tokens)), np.int64)
    more = {"interleaved": net.pick(0, 1), "num_heads": heads}
    return net.op("RotaryEmbedding", rows, *turns, where, **more)


def late_norm(net: Net, x: str) -> str | None:
    """Root-mean-square normalization, or a shortcut and a normalization in one."""
    shape = net.shape(x)
    factors = net.const(net.random.random(shape[-1:]) + 0.5, net.real)
    kind = net.pick("RMS", "RMS", "Skip", "SkipSimplified")
    if kind == "RMS" or len(shape) != 3:
        return net.op("RMSNormalization", x, factors, axis=-1)
    near = net.op("Mul", x, net.const(0.5, net.real))
    name = f"{kind}LayerNormalization"
    return net.op(name, x, near, factors, domain=MICROSOFT, epsilon=1e-5)


def late_activation(net: Net, x: str) -> str | None:
    """Activations of later operator sets, or of ONNX Runtime."""
    kind = net.pick("Gelu", "QuickGelu", "FastGelu", "BiasGelu", "Swish")
    if kind == "Swish":
        gate = net.op("Sigmoid", net.op("Mul", x, net.const(1.5, net.real)))
        return net.op("Mul", x, gate)
    more = [net.const(net.random.standard_normal(net.shape(x)[-1:]), net.real)]
    return net.op(kind, x, *(more if kind == "BiasGelu" else []), domain=MICROSOFT)


def best_few(net: Net, x: str) -> str | None:
    """The largest or smallest few along an axis: their values or where they are."""
    axis = net.rng.randrange(len(net.shape(x)))
    few = net.rng.randint(1, min(5, net.shape(x)[axis] or 1))
    made = net.ops("TopK", x, net.ints(few), outputs=2, axis=axis, largest=net.pick(0, 1))
    if made is None or net.maybe(0.6):
        return made and made[0]
    return net.op("Cast", made[1], to=float_code(net))


def positions(net: Net, shape: tuple[int, ...], below: int) -> str | None:
    """Indices below `below`: constants, an input, or computed of one."""
    if below < 1:
        return None
    kind = net.pick(np.int64, np.int64, np.int32)
    if net.maybe(0.5):
        low = -below if net.maybe(0.3) else 0
        return net.const(net.random.integers(low, below, shape), kind)
    given = net.input(*shape, dtype=kind, below=below)
    if net.maybe(0.6):
        return given
    added = net.op("Add", given, net.const(1, kind))
    return net.op("Mod", added, net.const(below, kind))


def gathers(net: Net, x: str) -> str | None:
    """Elements, slices or rows at given positions."""
    shape = net.shape(x)
    axis = net.rng.randrange(len(shape))
    kind = net.pick("Gather", "GatherElements", "GatherND")
    if kind == "Gather":
        form = net.pick((), (1,), (3,), (2, 2), (5,))
        return net.op(kind, x, positions(net, form, shape[axis]), axis=axis)
    if kind == "GatherElements":
        form = tuple(net.pick(n, n, max(1, n // 2)) for n in shape)
        return net.op(kind, x, positions(net, form, shape[axis]), axis=axis)
    deep = net.rng.randint(1, len(shape))
    return net.op(kind, x, positions(net, (net.pick(1, 3), deep), min(shape[:deep])))


def scatters(net: Net, x: str) -> str | None:
    """Elements or slices written to given positions, each once."""
    shape = net.shape(x)
    axis = net.rng.randrange(len(shape))
    reduction = net.pick("none", "none", "add", "max", "mul")
    if net.maybe(0.5):
        count = net.rng.randint(1, min(3, shape[axis] or 1))
        where = net.random.permutation(shape[axis])[:count]
        form = [*shape[:axis], count, *shape[axis + 1 :]]
        full = np.broadcast_to(
            where.reshape([-1 if a == axis else 1 for a in range(len(form))]), form
        )
        indices = net.const(full, np.int64)
        updates = net.const(net.random.standard_normal(form), net.real)
        more = {"axis": axis, "reduction": reduction}
        return net.op("ScatterElements", x, indices, updates, **more)
    rows = net.random.permutation(shape[0])[: net.pick(1, 2)]
    indices = net.const(rows[:, None], np.int64)
    updates = net.op("Gather", x, net.const(np.flip(rows), np.int64), axis=0)
    return net.op("ScatterND", x, indices, updates, reduction=reduction)


def truths(net: Net, x: str) -> str | None:
    """Truth values of two comparisons, joined, that choose or count."""
    near = [n for n in net.values if net.is_real(n) and broadcasts(net.shape(n), net.shape(x))]
    kinds = ("Greater", "Less", "GreaterOrEqual", "LessOrEqual")
    one = net.op(net.pick(*kinds), x, net.pick(*near))
    two = net.op(net.pick(*kinds), net.op("Abs", x), net.const(0.5, net.real))
    truth = net.op(net.pick("And", "Or", "Xor", "Equal"), one, two)
    if truth and net.maybe(0.3):
        truth = net.op("Not", truth)
    if net.maybe(0.5):
        return net.op("Where", truth, x, net.pick(*near))
    whole = net.op("Cast", truth, to=int(net.pick(TensorProto.INT32, TensorProto.INT64)))
    summed = net.op("ReduceSum", whole, net.ints(-1), keepdims=net.pick(0, 1))
    return net.op("Cast", summed, to=float_code(net))


def whole(net: Net, x: str) -> str | None:
    """Integers of any width: arithmetic, bits, sums and places, then floats again."""
    kind = net.pick(np.int32, np.int64, np.int8, np.uint8, np.int16, np.int32)
    scaled = net.op("Mul", net.op("Abs", x), net.const(3.0, net.real))
    code = net.op("Cast", scaled, to=int(np_code(kind)))
    if code is None:
        return None
    near = net.const(net.random.integers(1, 4, net.shape(x)[-1:]), kind)
    style = net.rng.randrange(5)
    if style == 0:
        code = net.op(net.pick("Add", "Mul", "Sub", "Div", "Max", "Min", "Mod"), code, near)
    elif style == 1:
        code = net.op(net.pick("BitwiseAnd", "BitwiseOr", "BitwiseXor"), code, near)
    elif style == 2:
        axes = net.ints(net.rng.randrange(len(net.shape(x))))
        code = net.op(net.pick("ReduceSum", "ReduceMax", "ReduceMin"), code, axes)
    elif style == 3:
        code = net.op("ArgMax", code, axis=-1, keepdims=1, select_last_index=net.pick(0, 1))
    else:
        code = net.op(net.pick("Abs", "Sign", "Neg", "Identity"), code)
        code = net.op("Cast", net.op("Equal", code, near), to=int(np_code(kind)))
    return net.op("Cast", code, to=float_code(net))


def np_code(kind: type) -> int:
    """The number that ONNX has for a numpy type."""
    return int({
        np.int32: TensorProto.INT32, np.int64: TensorProto.INT64, np.int8: TensorProto.INT8,
        np.uint8: TensorProto.UINT8, np.int16: TensorProto.INT16,
    }[kind])  # fmt: skip


def rearranged(net: Net, x: str) -> str | None:
    """Halves changed round, diagonals, one-hot rows, a crop: movement by rule."""
    shape = net.shape(x)
    kind = net.pick("roll", "OneHot", "CenterCropPad", "Trilu", "unfold")
    if kind == "roll":
        axis = net.rng.randrange(len(shape))
        at = net.rng.randrange(shape[axis] + 1)
        parts = net.ops("Split", x, net.ints(at, shape[axis] - at), outputs=2, axis=axis)
        return net.op("Concat", *reversed(parts), axis=axis) if parts else None
    if kind == "OneHot":
        deep = net.pick(1, 3, 7)
        where = net.op("Cast", net.op("Abs", x), to=int(TensorProto.INT64))
        return net.op(kind, where, net.const(deep, np.int64), net.const([-1.0, 2.0], net.real))
    if kind == "CenterCropPad":
        return net.op(kind, x, net.ints(*(max(1, n + net.pick(-2, -1, 0, 1, 3)) for n in shape)))
    if kind == "unfold" and len(shape) > 1:
        columns = [net.op("Slice", x, net.ints(i), net.ints(i + 1), net.ints(1)) for i in (0, 0)]
        return net.op("Concat", *columns, axis=-1)
    upper = net.pick(0, 1)
    return net.op("Trilu", x, net.const(net.pick(-2, 0, 1), np.int64), upper=upper)


def einsums(net: Net, x: str) -> str | None:
    """Sums over named axes: of one value, of two, with a diagonal's names in any order."""
    shape = net.shape(x)
    names = "abcdefg"[: len(shape)]
    if net.maybe(0.4):
        kept = "".join(net.rng.sample(names, net.rng.randint(1, len(names))))
        return net.op("Einsum", x, equation=f"{names}->{kept}")
    other = net.weight(shape[-1], *([shape[0]] if net.maybe(0.4) and len(shape) > 1 else []), 3)
    if other is None:
        return None
    second = f"{names[-1]}{names[0] if len(net.shape(other)) == 3 else ''}z"
    left = [n for n in names if n != names[-1] or net.maybe(0.2)]
    net.rng.shuffle(left)
    return net.op("Einsum", x, other, equation=f"{names},{second}->{''.join(left)}z")


def lone(net: Net, x: str) -> str | None:
    """A value without axes, worked on, and spread again."""
    axes = list(range(len(net.shape(x))))
    one = net.op(net.pick("ReduceMean", "ReduceMax"), x, net.ints(*axes), keepdims=0)
    one = net.op(net.pick("Sigmoid", "Neg", "Abs"), one)
    if net.maybe(0.25):
        return one
    return net.op(net.pick("Add", "Mul", "Sub"), *net.rng.sample([x, one or ""], 2))


def nothing(net: Net, x: str) -> str | None:
    """A part without elements, joined to something, summed to zeros, or left as it is."""
    shape = net.shape(x)
    axis = net.rng.randrange(len(shape))
    none = net.op("Slice", x, net.ints(0), net.ints(0), net.ints(axis))
    kind = net.rng.randrange(4)
    if kind == 0:
        return none
    if kind == 1:
        return net.op("Concat", none, x, axis=axis)
    if kind == 2:
        return net.op("ReduceSum", none, net.ints(axis), keepdims=net.pick(0, 1))
    count = math.prod(shape[:axis] + shape[axis + 1 :])
    flat = net.op("Reshape", none, net.ints(0, count), allowzero=1)
    return net.op("MatMul", flat, net.weight(count, 3))
