"""A model without the operators that hide products: attentions and recurrent layers, written out.

The one idea: a quantizer can only make integers of the products that it sees. What the compiler
makes of such operators anyhow is made before, as a model that ONNX Runtime runs too.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir

from compiler.errors import CompilerError
from compiler.graph.decompose_attention import EXPANSIONS, DecomposeAttention
from compiler.graph.rewrite import ARCHGEN, MICROSOFT
from compiler.load import Load, load
from compiler.passes import run_pass

HIDING = {
    *((MICROSOFT, name) for name in EXPANSIONS if name != "RotaryEmbedding"),
    *((MICROSOFT, name) for name in ("FusedConv", "NhwcConv", "NhwcFusedConv")),
    *(("", name) for name in ("Attention", "GRU", "LSTM", "LinearAttention", "RNN")),
}
"""Domain and type of operators with products inside."""


def hides_products(proto: onnx.ModelProto) -> bool:
    """Whether the main graph has operators with products inside."""
    return any((node.domain, node.op_type) in HIDING for node in proto.graph.node)


def in_standard_operators(
    proto: onnx.ModelProto, name: str, options: Load | None = None
) -> onnx.ModelProto | None:
    """`proto`, whose inputs have fixed shapes, without operators that hide products, as far as the
    compiler, with these options, has a body for them; None where it cannot read the model, or only
    with operators that nobody else has."""
    try:
        model = run_pass(DecomposeAttention(), load(proto, name, options)).ir
    except CompilerError:
        return None
    if any(node.domain == ARCHGEN for node in model.graph):
        return None
    del model.graph.opset_imports[ARCHGEN]
    made = ir.to_proto(model)
    made.metadata_props.extend(proto.metadata_props)
    return made
