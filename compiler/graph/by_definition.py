"""ONNX's own evaluator, where ONNX Runtime has no kernel.

The one idea: an operator of the newest operator set, or in an element type that nobody else uses,
has a definition before it has a kernel anywhere. The evaluator computes it from that, slow and
right. It stands in for want of a kernel alone: what ONNX Runtime finds wrong with a model is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from compiler.graph.outside import CHANCE

Array = NDArray[Any]

NOT_A_FUNCTION = CHANCE | {"Dropout"}
"""Operators that give another value at each run."""


def evaluator(proto: onnx.ModelProto) -> ReferenceEvaluator:
    """What computes `proto` from the definitions of its operators.

    Raises ValueError where they have none, or give another value at each run.
    """
    drawing = sorted(NOT_A_FUNCTION.intersection(_operators(proto.graph)))
    if drawing:
        raise ValueError(f"{', '.join(drawing)} gives another value at each run")
    try:
        return ReferenceEvaluator(proto)
    except (NotImplementedError, RuntimeError, TypeError, ValueError, KeyError) as why:
        said = " ".join(str(why).split())
        raise ValueError(f"ONNX's own evaluator cannot run it either: {said}") from why


def evaluated(
    run: ReferenceEvaluator, names: Sequence[str], feeds: Mapping[str, Array]
) -> list[Array]:
    """Values called `names`. Raises ValueError where the evaluator fails on these inputs."""
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(value) for value in run.run(list(names), dict(feeds))]
    except Exception as why:  # whatever numpy says of values that no operator takes
        raise ValueError(f"ONNX's own evaluator fails: {why}") from why


def _operators(graph: onnx.GraphProto) -> Iterator[str]:
    """Types of all nodes, also inside of subgraphs."""
    for node in graph.node:
        yield node.op_type
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _operators(body)
