"""Operators of your own: the names that an extension needs.

    from archgen.op import rewrite

    @rewrite("my.domain", "MyGelu")
    def my_gelu(b, x, *, alpha=1.702):
        return x * b.Sigmoid(x * alpha)

docs/extending.md says what each level can do, and how forms of instructions (`form`,
`instruction`) and kernels (`kernel`) are added. An extension file is named by `--extension FILE`.
"""

from __future__ import annotations

from compiler.api import Body, Declined, Part, Tensor, expression, kernel, rewrite
from simmodel.isa.extensions import form, instruction

__all__ = [
    "Body", "Declined", "Part", "Tensor", "expression", "form", "instruction", "kernel", "rewrite",
]  # fmt: skip
