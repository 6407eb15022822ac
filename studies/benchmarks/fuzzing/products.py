"""Matrix products: Gemm in every form, batched and broadcast MatMul, attention, recurrence."""

from __future__ import annotations

from typing import Any

from fuzzing.net import Net


def matmul(net: Net, x: str) -> str | None:
    """A product with constant weights, sometimes with leading extents or of rank 1."""
    *rows, wide = net.shape(x)
    if not rows and net.maybe(0.5):
        return net.op("MatMul", net.weight(net.pick(1, 3, 8), wide), x)
    out = net.pick(1, 2, 3, 5, 8, 16, 17)
    shape = [wide, out]
    if len(rows) > 1 and net.maybe(0.25):
        shape = [*(net.pick(1, extent) for extent in rows[:-1]), *shape]
    elif net.maybe(0.08):
        shape = [wide]
    made = net.op("MatMul", x, net.weight(*shape))
    if made and net.maybe(0.5) and net.shape(made):
        made = net.op(
            "Add", made, net.const(net.random.standard_normal(net.shape(made)[-1:]), net.real)
        )
    return made


def matmul_left(net: Net, x: str) -> str | None:
    """Constant weights on the left."""
    shape = net.shape(x)
    if len(shape) < 2:
        return None
    return net.op("MatMul", net.weight(net.pick(1, 3, 8), shape[-2]), x)


def own_product(net: Net, x: str) -> str | None:
    """A computed value times itself, turned, or times another of its shape."""
    shape = net.shape(x)
    if len(shape) < 2:
        return None
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    turned = net.op("Transpose", x, perm=order)
    if turned is None or net.maybe(0.5):
        return net.op("MatMul", x, turned)
    return net.op("MatMul", turned, x)


def gemm(net: Net, x: str) -> str | None:
    """Every form of Gemm; other ranks are flattened first."""
    if len(net.shape(x)) != 2:
        flat = net.op("Flatten", x, axis=net.rng.randrange(len(net.shape(x)) + 1))
        if flat is None:
            return None
        x = flat
    made: dict[str, Any] = {}
    rows, wide = net.shape(x)
    if net.maybe(0.25):
        made["transA"] = 1
        rows, wide = wide, rows
    out = net.pick(1, 2, 5, 8, 10)
    turned = net.maybe(0.5)
    if turned:
        made["transB"] = 1
    weights = net.weight(out, wide) if turned else net.weight(wide, out)
    if net.maybe(0.3):
        made |= {"alpha": net.pick(0.5, 2.0, -1.0), "beta": net.pick(0.0, 0.25, 1.0)}
    shapes = [(), (1,), (out,), (1, out), (rows, out), (rows, 1)]
    more = (
        [net.const(net.random.standard_normal(net.pick(*shapes)), net.real)]
        if net.maybe(0.7)
        else []
    )
    return net.op("Gemm", x, weights, *more, **made)


def attention(net: Net, x: str) -> str | None:
    """Heads of attention over tokens, sometimes masked."""
    if len(net.shape(x)) != 3:
        return None
    batch, tokens, wide = net.shape(x)
    heads = net.pick(*(h for h in (1, 2, 3, 4) if wide % h == 0))
    deep = wide // heads

    def split(order: list[int]) -> str | None:
        made = net.op("MatMul", x, net.weight(wide, wide))
        made = net.op("Reshape", made, net.ints(batch, tokens, heads, deep))
        return net.op("Transpose", made, perm=order)

    scores = net.op("MatMul", split([0, 2, 1, 3]), split([0, 2, 3, 1]))
    scores = net.op("Mul", scores, net.const(deep**-0.5, net.real))
    if net.maybe(0.3):
        mask = net.random.random((tokens, tokens)) < 0.3
        mask[:, 0] = False
        low = net.pick(-100.0, -1000.0, -10000.0)
        scores = net.op("Add", scores, net.const(mask * low, net.real))
    weights = net.op("Softmax", scores, axis=-1)
    mixed = net.op("Transpose", net.op("MatMul", weights, split([0, 2, 1, 3])), perm=[0, 2, 1, 3])
    mixed = net.op("Reshape", mixed, net.ints(batch, tokens, wide))
    return net.op("Add", net.op("MatMul", mixed, net.weight(wide, wide)), x)


def perceptron(net: Net, x: str) -> str | None:
    """Two products with an activation between, often beside a shortcut."""
    wide = net.shape(x)[-1]
    a = net.op("MatMul", x, net.weight(wide, net.pick(3, 8, 16)))
    a = net.op(net.pick("Gelu", "Relu", "Tanh"), a)
    if a is None:
        return None
    a = net.op("MatMul", a, net.weight(net.shape(a)[-1], wide))
    return net.op("Add", a, x) if net.maybe(0.5) else a


def recurrent(net: Net, x: str) -> str | None:
    """LSTM, GRU or RNN over the first extent of three."""
    if len(net.shape(x)) != 3:
        return None
    _, _, wide = net.shape(x)
    kind, gates = net.pick(("LSTM", 4), ("GRU", 3), ("RNN", 1))
    hidden = net.pick(1, 3, 4)
    both = net.maybe(0.3)
    ways = 2 if both else 1
    inputs = [
        net.const(0.4 * net.random.standard_normal((ways, gates * hidden, wide)), net.real),
        net.const(0.4 * net.random.standard_normal((ways, gates * hidden, hidden)), net.real),
    ]
    if net.maybe(0.6):
        inputs.append(net.const(net.random.standard_normal((ways, 2 * gates * hidden)), net.real))
    made: dict[str, Any] = {
        "hidden_size": hidden,
        "direction": "bidirectional" if both else "forward",
    }
    if kind == "GRU":
        made["linear_before_reset"] = net.pick(0, 1)
    return net.op(kind, x, *inputs, **made)


def einsum(net: Net, x: str) -> str | None:
    """A product written as a sum over named axes."""
    if len(net.shape(x)) != 3:
        return None
    return net.op("Einsum", x, net.weight(net.shape(x)[-1], net.pick(2, 5)), equation="bij,jk->bik")
