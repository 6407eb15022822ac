"""RNN, GRU and LSTM, also of integers, as scans over the sequence.

    p = X @ W + b                              of all steps at once
    h = f(p[t] + h @ R)                        step by step, RNN

The one idea: only what reads the state stands in the steps, the product with R and the gates. Gates
of one activation are computed together. Sequences of different lengths keep their state behind
their end, by masks: a reversed one begins at its own end that way. Values are limited to
`clip` as ONNX Runtime does it: what the gates read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.frontend.operators.body import Body, Contradicted, Declined, Tensor
from compiler.frontend.operators.definitions import rewrite_of

# Activations of recurrent networks by name, with the parameters that ONNX gives them.

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
    return [_activation(b, name, rest) for name in names]


def _activation(b: Body, name: str, rest: dict[str, Iterator[float]]) -> Activation:
    op_type = _SPELLED.get(name.lower())
    if op_type is None:
        raise Contradicted(f"activation {name!r} is unknown; there are {', '.join(_SPELLED)}")
    given = {key: next(rest[key], value) for key, value in _FORMS[op_type].items()}
    if op_type == "Affine":
        return lambda x: x * given["alpha"] + given["beta"]
    if op_type == "ScaledTanh":
        return lambda x: b.one("Tanh", x * given["beta"]) * given["alpha"]
    return lambda x: b.one(op_type, x, **given)


States = Sequence[Tensor]
Cell = Callable[..., list[Tensor]]
"""The next states of a step, from the projected input and the states."""
Product = Callable[[Tensor], Tensor]
"""With weights: [.., size] -> [.., rows]."""


@dataclass(frozen=True)
class _RecurrentSequence:
    """What the directions of one node have in common."""

    b: Body
    x: Tensor
    """[steps, batch, size]"""
    mask: Tensor | None
    """[steps, batch, 1]: 1 within a sequence, 0 behind its end; None: all are whole."""
    directions: tuple[bool, ...]
    """Of each, whether it is reversed."""
    hidden: int
    batch_first: bool

    def part(self, value: Tensor | None, direction: int) -> Tensor | None:
        """Weights, biases or peepholes of one direction: [directions, ...] without the first."""
        return None if value is None else self.part_given(value, direction)

    def part_given(self, value: Tensor, direction: int) -> Tensor:
        """As `part`, of what is there."""
        one = self.b.split(value, [1] * len(self.directions), 0)[direction]
        return self.b.reshape(one, value.shape[1:])

    def matrix(self, value: Tensor, direction: int, rows: slice | None = None) -> Tensor:
        """Weights [rows, size] of one direction, transposed: what a row is multiplied with."""
        one = self.part_given(value, direction)
        if rows is not None:
            begin, end, _ = rows.indices(one.shape[0])
            one = self.b.one("Slice", one, [begin], [end], [0])
        return self.b.transpose(one, 1, 0)

    def initial(self, value: Tensor | None, direction: int) -> Tensor:
        """A state before the first step: [batch, hidden]; zeros where none is given."""
        if value is None:
            return self.b.constant(np.zeros((self.x.shape[1], self.hidden)), self.x.dtype)
        if self.batch_first:
            value = self.b.transpose(value, 1, 0, 2)
        return self.part_given(value, direction)

    def projected(self, w: Tensor, bias: Tensor | None, direction: int) -> Tensor:
        """The input of all steps times the weights of one direction: [steps, batch, rows]."""
        product = self.x @ self.matrix(w, direction)
        return product if bias is None else product + bias

    def run(self, cell: Cell, p: Tensor, states: States, direction: int) -> list[Tensor]:
        """All steps of one direction: [steps, batch, hidden], and the last states."""

        def step(*values: Tensor) -> tuple[list[Tensor], list[Tensor]]:
            before, now = values[: len(states)], values[len(states)]
            after = cell(now, *before)
            if self.mask is None:
                return after, after[:1]
            mask = values[-1]
            kept = [
                self._masked_state(mask, new, old) for new, old in zip(after, before, strict=True)
            ]
            whole = mask.value is not None and mask.value.all()
            return kept, [after[0] if whole else after[0] * mask]

        over = [p] if self.mask is None else [p, self.mask]
        last, (y,) = self.b.scan(step, states, over, reverse=self.directions[direction])
        return [y, *last]

    def _masked_state(self, mask: Tensor, new: Tensor, old: Tensor) -> Tensor:
        """The new state within a sequence, the old one behind its end."""
        if mask.value is not None and mask.value.all():
            return new
        return new * mask + old * (1.0 - mask)

    def stack_directions(self, made: Sequence[Sequence[Tensor]]) -> tuple[Tensor, ...]:
        """Results of the directions as the node gives them: the sequence, and the last states."""
        sequences, *states = zip(*made, strict=True)
        y = self._stacked(sequences, 1)
        last = [self._stacked(state, 0) for state in states]
        if self.batch_first:
            y = self.b.transpose(y, 2, 0, 1, 3)
            last = [self.b.transpose(state, 1, 0, 2) for state in last]
        return y, *last

    def _stacked(self, values: Sequence[Tensor], axis: int) -> Tensor:
        wide = [self.b.reshape(v, (*v.shape[:axis], 1, *v.shape[axis:])) for v in values]
        return self.b.concat(wide, axis)


_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass(frozen=True)
class _Operator:
    """What an operator expects of its inputs."""

    gates: int
    """Rows of weights for each element of the state."""
    activations: int
    """Of each direction."""
    transposed: bool = False
    """Whether weights are [directions, size, rows]."""

    def sequence(
        self, b: Body, given: Mapping[str, Tensor | None], direction: str, layout: int,
        hidden_size: int | None, activations: Sequence[str],
    ) -> _RecurrentSequence:  # fmt: skip
        """The node with these inputs, by name; Contradicted where they are not its operator's."""
        if direction not in _DIRECTIONS:
            known = ", ".join(_DIRECTIONS)
            raise Contradicted(f"direction {direction!r}, expected one of {known}")
        three = {name: given[name] for name in ("x", "w", "r")}
        flat = [f"{n} has {len(t.shape)}" for n, t in three.items() if t and len(t.shape) != 3]
        if flat:
            raise Contradicted(f"x, w and r have 3 dimensions each; {', '.join(flat)}")
        x, r, directions = given["x"], given["r"], _DIRECTIONS[direction]
        assert x is not None and r is not None
        hidden = r.shape[1 if self.transposed else 2]
        batch = x.shape[0 if layout else 1]
        wrong = self._shape_mistakes(given, len(directions), batch, x.shape[2], hidden, layout)
        if hidden_size not in (None, hidden):
            wrong.append(f"hidden_size is {hidden_size}, r has {hidden}")
        if len(activations) < (count := self.activations * len(directions)):
            wrong.append(f"there are {len(activations)} activations, expected {count}")
        if wrong:
            raise Contradicted("; ".join(wrong))
        if layout:
            x = b.transpose(x, 1, 0, 2)
        mask = _mask(b, x, given["lengths"])
        return _RecurrentSequence(b, x, mask, directions, hidden, bool(layout))

    def _shape_mistakes(
        self, given: Mapping[str, Tensor | None], directions: int, batch: int, size: int,
        hidden: int, layout: int,
    ) -> list[str]:  # fmt: skip
        """A sentence for each input of another shape than the others ask for."""
        rows = self.gates * hidden
        state = (batch, directions, hidden) if layout else (directions, batch, hidden)
        wanted: dict[str, tuple[int, ...]] = {
            "w": (directions, rows, size), "r": (directions, rows, hidden),
            "bias": (directions, 2 * rows), "lengths": (batch,), "h": state, "c": state,
            "peepholes": (directions, 3 * hidden),
        }  # fmt: skip
        if self.transposed:
            wanted |= {"w": (directions, size, rows), "r": (directions, hidden, rows)}
        return [
            f"{name} is {[*value.shape]}, expected {[*wanted[name]]}"
            for name, value in given.items()
            if value is not None and name in wanted and value.shape != wanted[name]
        ]


_RNN, _GRU, _LSTM = _Operator(1, 1), _Operator(3, 2), _Operator(4, 3)
_QUANTIZED_LSTM = _Operator(4, 3, transposed=True)


def _mask(b: Body, x: Tensor, lengths: Tensor | None) -> Tensor | None:
    """1 at the steps that each sequence of the batch has, 0 behind: [steps, batch, 1]."""
    steps, batch = x.shape[:2]
    if lengths is None or (lengths.value is not None and (lengths.value >= steps).all()):
        return None
    real = b.reshape(b.one("Cast", lengths, to=x.dtype), (1, batch, 1))
    positions = np.arange(steps).reshape(steps, 1, 1)
    return b.one("Clip", real - b.constant(positions, x.dtype), 0.0, 1.0)


def _biases(
    sequence: _RecurrentSequence, bias: Tensor | None, direction: int
) -> tuple[Tensor, Tensor] | None:
    """Those of the input and of the state: [rows] each."""
    both = sequence.part(bias, direction)
    if both is None:
        return None
    of_input, of_state = sequence.b.split(both, [both.shape[0] // 2] * 2, 0)
    return of_input, of_state


def _limited(b: Body, clip: float | None) -> Callable[[Activation], Activation]:
    """What an activation reads, limited to [-clip, clip]."""

    def limit(activation: Activation) -> Activation:
        if clip is None:
            return activation
        return lambda x: activation(b.one("Clip", x, -clip, clip))

    return limit


@rewrite_of("", "RNN")
def rnn(
    b: Body, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None = None,
    lengths: Tensor | None = None, h: Tensor | None = None,
    *, hidden_size: int | None = None, direction: str = "forward",
    activations: Sequence[str] = ("Tanh", "Tanh"), activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (), clip: float | None = None, layout: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """h = f(x @ W + h @ R + biases)."""
    given = {"x": x, "w": w, "r": r, "bias": bias, "lengths": lengths, "h": h}
    sequence = _RNN.sequence(b, given, direction, layout, hidden_size, activations)
    count = len(sequence.directions)
    chosen = activations_of(b, activations[:count], activation_alpha, activation_beta)
    made = []
    for each in range(count):
        f, matrix = _limited(b, clip)(chosen[each]), sequence.matrix(r, each)
        biases = _biases(sequence, bias, each)
        p = sequence.projected(w, biases and biases[0] + biases[1], each)

        def cell(now: Tensor, h: Tensor, f: Activation = f, m: Tensor = matrix) -> list[Tensor]:
            return [f(now + h @ m)]

        made.append(sequence.run(cell, p, [sequence.initial(h, each)], each))
    return sequence.stack_directions(made)


@rewrite_of("", "GRU")
def gru(
    b: Body, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None = None,
    lengths: Tensor | None = None, h: Tensor | None = None,
    *, hidden_size: int | None = None, direction: str = "forward",
    activations: Sequence[str] = ("Sigmoid", "Tanh") * 2, activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (), clip: float | None = None, layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """z, r = f(...); h = (1 - z) * g(x @ W + (r * h) @ R) + z * h."""
    given = {"x": x, "w": w, "r": r, "bias": bias, "lengths": lengths, "h": h}
    sequence = _GRU.sequence(b, given, direction, layout, hidden_size, activations)
    chosen = activations_of(b, activations, activation_alpha, activation_beta)
    made = []
    for each in range(len(sequence.directions)):
        f, g = map(_limited(b, clip), chosen[2 * each : 2 * each + 2])
        cell, of_input = _gru_cell(sequence, r, _biases(sequence, bias, each), each, (f, g),
                                   linear=bool(linear_before_reset))  # fmt: skip
        p = sequence.projected(w, of_input, each)
        made.append(sequence.run(cell, p, [sequence.initial(h, each)], each))
    return sequence.stack_directions(made)


def _gru_cell(
    sequence: _RecurrentSequence, r: Tensor, biases: tuple[Tensor, Tensor] | None, direction: int,
    activations: tuple[Activation, Activation], *, linear: bool,
) -> tuple[Cell, Tensor | None]:  # fmt: skip
    """The step of a GRU, and what is added to the product with its input. `linear`: the reset gate
    multiplies the product with the state and its bias, not the state."""
    b, n = sequence.b, sequence.hidden
    f, g = activations
    gates = sequence.matrix(r, direction, slice(0, 2 * n))
    candidate = sequence.matrix(r, direction, slice(2 * n, 3 * n))
    inner: Tensor | None = None
    outer = None if biases is None else biases[0] + biases[1]
    if biases is not None and linear:
        of_gates, inner = b.split(biases[1], [2 * n, n], 0)
        nothing = b.constant(np.zeros(n), inner.dtype)
        outer = biases[0] + b.one("Concat", of_gates, nothing, axis=0)

    def cell(now: Tensor, h: Tensor) -> list[Tensor]:
        now_gates, now_candidate = b.split(now, [2 * n, n], 1)
        z, reset = b.split(f(now_gates + h @ gates), [n, n], 1)
        if linear:
            product = h @ candidate
            moved = reset * (product if inner is None else product + inner)
        else:
            moved = (reset * h) @ candidate
        new = g(now_candidate + moved)
        return [new + z * (h - new)]

    return cell, outer


@rewrite_of("", "LSTM")
def lstm(
    b: Body, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None = None,
    lengths: Tensor | None = None, h: Tensor | None = None, c: Tensor | None = None,
    peepholes: Tensor | None = None, *, hidden_size: int | None = None,
    direction: str = "forward", activations: Sequence[str] = ("Sigmoid", "Tanh", "Tanh") * 2,
    activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (),
    clip: float | None = None, input_forget: int = 0, layout: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """i, o, f = f(...); c = f * c + i * g(...); h = o * h(c)."""
    given = {
        "x": x, "w": w, "r": r, "bias": bias, "lengths": lengths, "h": h, "c": c,
        "peepholes": peepholes,
    }  # fmt: skip
    sequence = _LSTM.sequence(b, given, direction, layout, hidden_size, activations)
    chosen = activations_of(b, activations, activation_alpha, activation_beta)

    def product(name: str, each: int) -> Product:
        weights = given[name]
        assert weights is not None
        matrix = sequence.matrix(weights, each)
        return lambda values: values @ matrix

    return _lstm_results(sequence, given, product, chosen, clip, coupled=bool(input_forget))


@rewrite_of("com.microsoft", "DynamicQuantizeLSTM")
def dynamic_quantize_lstm(
    b: Body, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None = None,
    lengths: Tensor | None = None, h: Tensor | None = None, c: Tensor | None = None,
    peepholes: Tensor | None = None, w_scale: Tensor | None = None, w_zero: Tensor | None = None,
    r_scale: Tensor | None = None, r_zero: Tensor | None = None,
    *, hidden_size: int | None = None, direction: str = "forward",
    activations: Sequence[str] = (), activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (), clip: float | None = None, input_forget: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """An LSTM whose weights are integers; the input of all steps, and the state in each, are
    quantized in the range that they have."""
    kinds = [*activations] or ["Sigmoid", "Tanh", "Tanh"] * 2
    given = {
        "x": x, "w": w, "r": r, "bias": bias, "lengths": lengths, "h": h, "c": c,
        "peepholes": peepholes,
    }  # fmt: skip
    sequence = _QUANTIZED_LSTM.sequence(b, given, direction, 0, hidden_size, kinds)
    if sequence.mask is not None:
        raise Declined("sequences of different lengths, each step quantized by those that go on")
    chosen = activations_of(b, kinds, activation_alpha, activation_beta)
    weights = {"w": (w, w_scale, w_zero), "r": (r, r_scale, r_zero)}

    def product(name: str, each: int) -> Product:
        matrix, scale, zero = weights[name]
        if matrix.value is None or scale is None or zero is None or zero.value is None:
            raise Declined("weights that are computed, or without scale and zero point")
        return _integer_product(
            b, *(sequence.part_given(value, each) for value in (matrix, scale, zero))
        )

    return _lstm_results(sequence, given, product, chosen, clip, coupled=bool(input_forget))


def _lstm_results(
    sequence: _RecurrentSequence, given: Mapping[str, Tensor | None],
    product: Callable[[str, int], Product], chosen: Sequence[Activation], clip: float | None,
    *, coupled: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Results of an LSTM. `product`: with weights, of the input ("w") or the state ("r"), of a
    direction; `chosen`: three activations for each."""

    def of_direction(each: int) -> list[Tensor]:
        gates, candidate, cell_activation = chosen[3 * each : 3 * each + 3]
        limit = _limited(sequence.b, clip)  # what the last one reads has no limit
        cell = _lstm_cell(
            sequence, product("r", each), sequence.part(given["peepholes"], each),
            (limit(gates), limit(candidate), cell_activation), coupled=coupled,
        )  # fmt: skip
        p = product("w", each)(sequence.x)
        biases = _biases(sequence, given["bias"], each)
        p = p if biases is None else p + (biases[0] + biases[1])
        states = [sequence.initial(given[name], each) for name in ("h", "c")]
        return sequence.run(cell, p, states, each)

    return sequence.stack_directions([of_direction(e) for e in range(len(sequence.directions))])


def _integer_product(b: Body, matrix: Tensor, factor: Tensor, point: Tensor) -> Product:
    """The product with integers [size, rows], of scale `factor` and zero `point`, for all or by
    row, of what is quantized in its own range."""

    def product(values: Tensor) -> Tensor:
        integers, scale, zero = b.op("DynamicQuantizeLinear", values, outputs=3)
        sums = b.one("MatMulInteger", integers, matrix, zero, point)
        real = b.one("Cast", sums, to=values.dtype)
        made: Tensor = real * (scale * factor)
        return made

    return product


def _lstm_cell(
    sequence: _RecurrentSequence, product: Product, peepholes: Tensor | None,
    activations: Sequence[Activation], *, coupled: bool,
) -> Cell:  # fmt: skip
    """The step of an LSTM. `product`: of the state; `coupled`: what is forgotten is what is not
    taken in."""
    b, n = sequence.b, sequence.hidden
    f, g, of_cell = activations
    peep = None if peepholes is None else b.split(peepholes, [n, n, n], 0)

    def cell(now: Tensor, h: Tensor, c: Tensor) -> list[Tensor]:
        total = now + product(h)
        if peep is None:
            gates, candidate = b.split(total, [3 * n, n], 1)
            taken, given, kept = b.split(f(gates), [n, n, n], 1)
        else:
            i, o, forget, candidate = b.split(total, [n] * 4, 1)
            taken, kept = f(i + peep[0] * c), f(forget + peep[2] * c)
        if coupled:
            kept = 1.0 - taken
        new = kept * c + taken * g(candidate)
        if peep is not None:
            given = f(o + peep[1] * new)
        return [given * of_cell(new), new]

    return cell


TABLE = (rnn, gru, lstm, dynamic_quantize_lstm)
