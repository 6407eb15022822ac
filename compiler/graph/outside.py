"""Operators that no accelerator is given: classical learning, training, chance.

The one idea: whether a model asks for one can be seen before anything is made of the model, so the
node that does is named, with what would help. Values that are no numbers: `graph/no_numbers.py`.
"""

from __future__ import annotations

_DOMAINS = {
    "ai.onnx.ml": "classical machine learning and look-ups are not compiled; "
    "export the part of the model that computes with tensors",
    "ai.onnx.preview.training": "training is not compiled; export the model for inference",
    "ai.onnx.training": "training is not compiled; export the model for inference",
}
CHANCE = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
     "RandomUniformLike")
)  # fmt: skip


def outside(op_type: str, domain: str) -> str | None:
    """Why an operator is not compiled whatever it is given, and what would help; None: it may be.

    `domain` is empty for ONNX's own operators.
    """
    if domain in _DOMAINS:
        return _DOMAINS[domain]
    if not domain and op_type in CHANCE:
        return (
            "it makes other values in each run, which nothing can be compared with; make what it "
            "draws an input of the model"
        )
    return None
