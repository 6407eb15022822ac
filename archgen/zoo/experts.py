"""A mixture of experts (Shazeer et al. 2017): the feed-forward layer of Granite 3.0 1B-A400M.

The one idea: which of the experts' weights matter is known at run time only. Either all experts
compute all tokens and most results are multiplied by zero, or the weights of the chosen ones are
gathered for each token.
"""

from __future__ import annotations

import math

from archgen.zoo.builder import Builder, Tensor, ZooError
from archgen.zoo.moments import Moments

_OUTPUT_GAIN = 4.0
"""Of the last product: a weighted mean over the chosen experts is small."""


def moe(
    net: Builder,
    *,
    batch: int,
    sequence: int,
    hidden: int,
    wide: int,
    experts: int,
    active: int,
    gathered: int,
) -> None:
    """Appends the layer on normalized hidden states (batch, sequence, hidden): ``active`` of
    ``experts`` gated perceptrons of width ``wide`` for each token. With ``gathered`` the weights
    of the chosen experts are gathered, else all experts compute all tokens."""
    if active > experts:
        raise ZooError(f"{net.graph.name}: active={active} is over experts={experts}")
    x = net.input("hidden_states", (batch, sequence, hidden))
    tokens = batch * sequence
    (flat,) = net.node("Reshape", "tokens", [x.name, net.integers([tokens, hidden])])
    router = net.parameter("router.weight", net.normal((hidden, experts), 1 / math.sqrt(hidden)))
    (logits,) = net.node("MatMul", "router", [flat, router])
    best, chosen = net.node("TopK", "chosen", [logits, net.integers([active])], 2, axis=-1)
    (gates,) = net.node("Softmax", "gates", [best], axis=-1)
    weights = _weights(net, experts, hidden, wide)
    if gathered:
        mixed = _gathered(net, flat, chosen, gates, weights, (tokens, active, hidden))
    else:
        mixed = _dense(net, flat, chosen, gates, weights, (tokens, experts))
    (y,) = net.node("Reshape", "mixed.shaped", [mixed, net.integers(x.shape)])
    net.output("output", Tensor(y, x.shape, Moments.standard(hidden)))


def _weights(net: Builder, experts: int, hidden: int, wide: int) -> dict[str, str]:
    """Of all experts: (experts, inputs, outputs) of the gate, of what is gated, and of the way
    back."""
    shapes = {"gate": (hidden, wide, 1.0), "up": (hidden, wide, 1.0)}
    shapes["down"] = (wide, hidden, _OUTPUT_GAIN)
    return {
        kind: net.parameter(
            f"experts.{kind}", net.normal((experts, given, made), gain / math.sqrt(given))
        )
        for kind, (given, made, gain) in shapes.items()
    }


def _dense(
    net: Builder,
    x: str,
    chosen: str,
    gates: str,
    weights: dict[str, str],
    shape: tuple[int, int],
) -> str:
    """All experts on all tokens, times gates (tokens, experts) that are mostly zero."""
    (none,) = net.node("ConstantOfShape", "gates.none", [net.integers(shape)])
    (spread,) = net.node("ScatterElements", "gates.spread", [none, chosen, gates], axis=1)
    (turned,) = net.node("Transpose", "gates.turned", [spread], perm=[1, 0])
    (column,) = net.node("Unsqueeze", "gates.column", [turned, net.integers([2])])
    y = _perceptrons(net, x, weights)
    (gated,) = net.node("Mul", "gated", [y, column])
    return net.node("ReduceSum", "mixed", [gated, net.integers([0])], keepdims=0)[0]


def _gathered(
    net: Builder,
    x: str,
    chosen: str,
    gates: str,
    weights: dict[str, str],
    shape: tuple[int, int, int],
) -> str:
    """Each token's experts alone: weights (tokens, active, inputs, outputs) by Gather."""
    tokens, active, hidden = shape
    mine = {
        kind: net.node("Gather", f"experts.{kind}.chosen", [weight, chosen], axis=0)[0]
        for kind, weight in weights.items()
    }
    (apart,) = net.node("Reshape", "tokens.apart", [x, net.integers([tokens, 1, 1, hidden])])
    y = _perceptrons(net, apart, mine)
    column = net.integers([tokens, active, 1, 1])
    (scales,) = net.node("Reshape", "gates.column", [gates, column])
    (gated,) = net.node("Mul", "gated", [y, scales])
    return net.node("ReduceSum", "mixed", [gated, net.integers([1, 2])], keepdims=0)[0]


def _perceptrons(net: Builder, x: str, weights: dict[str, str]) -> str:
    """SwiGLU with whole stacks of weights."""
    gate, up = (
        net.node("MatMul", f"experts.{kind}.product", [x, weights[kind]])[0]
        for kind in ("gate", "up")
    )
    (sigmoid,) = net.node("Sigmoid", "experts.sigmoid", [gate])
    (swish,) = net.node("Mul", "experts.swish", [gate, sigmoid])
    (inner,) = net.node("Mul", "experts.inner", [swish, up])
    return net.node("MatMul", "experts.down.product", [inner, weights["down"]])[0]
