"""RNN, GRU and LSTM as scans over the sequence.

    p = X @ W + b                              of all steps at once
    h = f(p[t] + h @ R)                        step by step, RNN

The one idea: only what reads the state stands in the steps, the product with R and the gates. Gates
of one activation are computed together. Sequences of different lengths keep their state behind
their end, by masks: a reversed one begins at its own end that way. Values are limited to
`clip` as ONNX Runtime does it: what the gates read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.frontend.operators.body import Body, Contradicted, Tensor
from compiler.frontend.operators.definitions import Table, defines

RECURRENT: Table = {}

Activation = Callable[[Tensor], Tensor]
_FORMS: dict[str, dict[str, float]] = {
    "Affine": {"alpha": 1.0, "beta": 0.0}, "Elu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5}, "LeakyRelu": {"alpha": 0.01}, "Relu": {},
    "ScaledTanh": {"alpha": 1.0, "beta": 1.0}, "Sigmoid": {}, "Softplus": {}, "Softsign": {},
    "Tanh": {}, "ThresholdedRelu": {"alpha": 1.0},
}  # fmt: skip
"""Parameters of activations, and their defaults."""
_SPELLED = {name.lower(): name for name in _FORMS}


def activations_of(
    b: Body, names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]
) -> list[Activation]:
    """Activations in order; each takes the next of the parameters that it has, or its default."""
    rest = {"alpha": iter(alphas), "beta": iter(betas)}

    def function(name: str) -> Activation:
        op_type = _SPELLED.get(name.lower())
        if op_type is None:
            raise Contradicted(f"activation {name!r} is unknown; there are {', '.join(_SPELLED)}")
        given = {key: next(rest[key], value) for key, value in _FORMS[op_type].items()}
        if op_type == "Affine":
            return lambda x: x * given["alpha"] + given["beta"]
        if op_type == "ScaledTanh":
            return lambda x: b.one("Tanh", x * given["beta"]) * given["alpha"]
        return lambda x: b.one(op_type, x, **given)

    return [function(name) for name in names]


# The steps of the three operators.

Cell = Callable[..., list[Tensor]]
"""The next states of a step, from the projected input and the states."""


@dataclass(frozen=True)
class _Direction:
    """What the step of one direction is made of."""

    b: Body
    r: Tensor
    """Weights of the state: [rows, hidden]."""
    biases: Sequence[Tensor]
    """Of the input and of the state, [rows] each; none where the node has none."""
    peepholes: Tensor | None
    functions: Sequence[Activation]
    variant: bool
    """`linear_before_reset` of a GRU, `input_forget` of an LSTM."""

    @property
    def bias(self) -> Tensor | None:
        """What is added to the product with the input."""
        return self.biases[0] + self.biases[1] if self.biases else None

    def weights(self, first: int = 0, end: int | None = None) -> Tensor:
        """Rows of the weights, transposed: what a state is multiplied by."""
        end = self.r.shape[0] if end is None else end
        return self.b.transpose(self.b.slice(self.r, 0, first, end), 1, 0)


def _rnn(d: _Direction) -> tuple[Cell, Tensor | None]:
    """h = f(x @ W + h @ R + biases)."""
    (f,), weights = d.functions, d.weights()
    return lambda now, h: [f(now + h @ weights)], d.bias


def _gru(d: _Direction) -> tuple[Cell, Tensor | None]:
    """z, r = f(...); h = (1 - z) * g(x @ W + (r * h) @ R) + z * h. In the variant the reset gate
    multiplies the product with the state and its bias, not the state."""
    b, n, (f, g) = d.b, d.r.shape[1], d.functions
    gates, candidate = d.weights(0, 2 * n), d.weights(2 * n, 3 * n)
    inner: Tensor | None = None
    outer = d.bias if not d.variant else None
    if d.biases and d.variant:
        of_gates, inner = b.split(d.biases[1], [2 * n, n], 0)
        nothing = b.constant(np.zeros(n), inner.dtype)
        outer = d.biases[0] + b.one("Concat", of_gates, nothing, axis=0)

    def cell(now: Tensor, h: Tensor) -> list[Tensor]:
        now_gates, now_candidate = b.split(now, [2 * n, n], 1)
        z, reset = b.split(f(now_gates + h @ gates), [n, n], 1)
        if d.variant:
            product = h @ candidate
            moved = reset * (product if inner is None else product + inner)
        else:
            moved = (reset * h) @ candidate
        new = g(now_candidate + moved)
        return [new + z * (h - new)]

    return cell, outer


def _lstm(d: _Direction) -> tuple[Cell, Tensor | None]:
    """i, o, f = f(...); c = f * c + i * g(...); h = o * h(c). In the variant what is forgotten is
    what is not taken in."""
    b, n, (f, g, of_cell) = d.b, d.r.shape[1], d.functions
    weights = d.weights()
    peep = None if d.peepholes is None else b.split(d.peepholes, [n, n, n], 0)

    def cell(now: Tensor, h: Tensor, c: Tensor) -> list[Tensor]:
        total = now + h @ weights
        if peep is None:
            gates, candidate = b.split(total, [3 * n, n], 1)
            taken, given, kept = b.split(f(gates), [n, n, n], 1)
        else:
            i, o, forget, candidate = b.split(total, [n] * 4, 1)
            taken, kept = f(i + peep[0] * c), f(forget + peep[2] * c)
        if d.variant:
            kept = 1.0 - taken
        new = kept * c + taken * g(candidate)
        if peep is not None:
            given = f(o + peep[1] * new)
        return [given * of_cell(new), new]

    return cell, d.bias


_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_KINDS: dict[str, tuple[int, Callable[[_Direction], tuple[Cell, Tensor | None]], list[str]]] = {
    "RNN": (1, _rnn, ["Tanh"]),
    "GRU": (3, _gru, ["Sigmoid", "Tanh"]),
    "LSTM": (4, _lstm, ["Sigmoid", "Tanh", "Tanh"]),
}
"""Rows of weights for each element of the state, the step, and the usual activations."""


@defines(RECURRENT, *_KINDS)
def recurrent(
    b: Body, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None = None,
    lengths: Tensor | None = None, h: Tensor | None = None, c: Tensor | None = None,
    peepholes: Tensor | None = None, *, hidden_size: int | None = None,
    direction: str = "forward", activations: Sequence[str] = (),
    activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (),
    clip: float | None = None, layout: int = 0, linear_before_reset: int = 0, input_forget: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The states of all steps, and the last ones."""
    gates, kind, usual = _KINDS[b.node.op_type]
    if direction not in _DIRECTIONS:
        known = ", ".join(_DIRECTIONS)
        raise Contradicted(f"direction {direction!r}, expected one of {known}")
    count = len(_DIRECTIONS[direction])
    names = (activations or usual * 2)[: len(usual) * count]
    given = {"x": x, "w": w, "r": r, "bias": bias, "lengths": lengths, "h": h, "c": c,
             "peepholes": peepholes}  # fmt: skip
    wrong = _mistakes(given, gates, count, hidden_size, layout)
    if len(names) < len(usual) * count:
        wrong.append(f"there are {len(names)} activations, expected {len(usual) * count}")
    if wrong:
        raise Contradicted("; ".join(wrong))
    if layout:
        x = b.transpose(x, 1, 0, 2)
    hidden, mask = r.shape[2], _mask(b, x, lengths)
    chosen = activations_of(b, names, activation_alpha, activation_beta)

    def of_direction(each: int, reverse: bool) -> list[Tensor]:
        def part(value: Tensor) -> Tensor:
            return b.reshape(b.split(value, [1] * count, 0)[each], value.shape[1:])

        def initial(value: Tensor | None) -> Tensor:
            if value is None:
                return b.constant(np.zeros((x.shape[1], hidden)), x.dtype)
            return part(b.transpose(value, 1, 0, 2) if layout else value)

        functions = chosen[len(usual) * each :][: len(usual)]
        if clip is not None:  # of what they read, but for what an LSTM makes of its state
            functions = [*(_limited(b, f, clip) for f in functions[:2]), *functions[2:]]
        biases = [] if bias is None else b.split(part(bias), [gates * hidden] * 2, 0)
        peeps = None if peepholes is None else part(peepholes)
        variant = bool(linear_before_reset or input_forget)
        cell, added = kind(_Direction(b, part(r), biases, peeps, functions, variant))
        p = x @ b.transpose(part(w), 1, 0)
        states = [initial(value) for value in ((h, c) if kind is _lstm else (h,))]
        return _run(b, cell, p if added is None else p + added, states, mask, reverse)

    made = [of_direction(*each) for each in enumerate(_DIRECTIONS[direction])]
    sequences, *states = zip(*made, strict=True)
    y, last = b.stack(sequences, 1), [b.stack(state, 0) for state in states]
    if layout:
        y, last = b.transpose(y, 2, 0, 1, 3), [b.transpose(each, 1, 0, 2) for each in last]
    return y, *last


def _run(
    b: Body, cell: Cell, p: Tensor, states: Sequence[Tensor], mask: Tensor | None, reverse: bool
) -> list[Tensor]:
    """All steps of one direction: [steps, batch, hidden], and the last states."""

    def step(*values: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        before, now = values[: len(states)], values[len(states)]
        after = cell(now, *before)
        here = None if mask is None else values[-1]
        if here is None or (here.value is not None and here.value.all()):
            return after, after[:1]
        kept = [new * here + old * (1.0 - here) for new, old in zip(after, before, strict=True)]
        return kept, [after[0] * here]

    last, (y,) = b.scan(step, states, [p] if mask is None else [p, mask], reverse=reverse)
    return [y, *last]


def _limited(b: Body, function: Activation, clip: float) -> Activation:
    return lambda x: function(b.one("Clip", x, -clip, clip))


def _mask(b: Body, x: Tensor, lengths: Tensor | None) -> Tensor | None:
    """1 at the steps that each sequence of the batch has, 0 behind: [steps, batch, 1]; None where
    all have all."""
    steps, batch = x.shape[:2]
    if lengths is None or (lengths.value is not None and (lengths.value >= steps).all()):
        return None
    real = b.reshape(b.one("Cast", lengths, to=x.dtype), (1, batch, 1))
    positions = np.arange(steps).reshape(steps, 1, 1)
    return b.one("Clip", real - b.constant(positions, x.dtype), 0.0, 1.0)


def _mistakes(
    given: Mapping[str, Tensor | None], gates: int, count: int, hidden_size: int | None, layout: int
) -> list[str]:
    """A sentence for each input of another shape than the others ask for; raises Contradicted where
    shapes cannot be compared."""
    three = {name: value.shape for name in ("x", "w", "r") if (value := given[name]) is not None}
    flat = [f"{name} has {len(shape)}" for name, shape in three.items() if len(shape) != 3]
    if flat:
        raise Contradicted(f"x, w and r have 3 dimensions each; {', '.join(flat)}")
    batch, size, hidden = three["x"][0 if layout else 1], three["x"][2], three["r"][2]
    rows = gates * hidden
    state = (batch, count, hidden) if layout else (count, batch, hidden)
    wanted: dict[str, tuple[int, ...]] = {
        "w": (count, rows, size), "r": (count, rows, hidden), "bias": (count, 2 * rows),
        "lengths": (batch,), "h": state, "c": state, "peepholes": (count, 3 * hidden),
    }  # fmt: skip
    wrong = [
        f"{name} is {[*value.shape]}, expected {[*wanted[name]]}"
        for name, value in given.items()
        if value is not None and name in wanted and value.shape != wanted[name]
    ]
    if hidden_size not in (None, hidden):
        wrong.append(f"hidden_size is {hidden_size}, r has {hidden}")
    return wrong
