"""Activations of recurrent networks by name, with the parameters that ONNX gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from compiler.graph.body import Body, Contradicted, Tensor

Activation = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class _Form:
    """One activation: as a function of builder, value and parameters."""

    make: Callable[..., Tensor]
    alpha: float | None = None
    """Default; None: it has no such parameter."""
    beta: float | None = None


def _named(op_type: str, **names: str) -> Callable[..., Tensor]:
    """An operator of ONNX; `names` are its attributes for alpha and beta."""

    def make(b: Body, x: Tensor, **given: float) -> Tensor:
        return b.one(op_type, x, **{names[key]: value for key, value in given.items()})

    return make


_BOTH = {"alpha": "alpha", "beta": "beta"}
_FORMS = {
    "affine": _Form(lambda b, x, alpha, beta: x * alpha + beta, 1.0, 0.0),
    "elu": _Form(_named("Elu", alpha="alpha"), 1.0),
    "hardsigmoid": _Form(_named("HardSigmoid", **_BOTH), 0.2, 0.5),
    "leakyrelu": _Form(_named("LeakyRelu", alpha="alpha"), 0.01),
    "relu": _Form(_named("Relu")),
    "scaledtanh": _Form(lambda b, x, alpha, beta: b.one("Tanh", x * beta) * alpha, 1.0, 1.0),
    "sigmoid": _Form(_named("Sigmoid")),
    "softplus": _Form(_named("Softplus")),
    "softsign": _Form(_named("Softsign")),
    "tanh": _Form(_named("Tanh")),
    "thresholdedrelu": _Form(_named("ThresholdedRelu", alpha="alpha"), 1.0),
}


def activations_of(
    b: Body, names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]
) -> list[Activation]:
    """Activations in order; each takes the next of the parameters that it has, or its default."""
    rest = {"alpha": iter(alphas), "beta": iter(betas)}
    return [_activation(b, name, rest) for name in names]


def _activation(b: Body, name: str, rest: dict[str, Iterator[float]]) -> Activation:
    form = _FORMS.get(name.lower())
    if form is None:
        raise Contradicted(f"activation {name!r} is unknown; there are {', '.join(_FORMS)}")
    defaults = {"alpha": form.alpha, "beta": form.beta}
    given = {key: next(rest[key], value) for key, value in defaults.items() if value is not None}
    return lambda x: form.make(b, x, **given)
