"""One scale for a state and for what it is in the next inference.

The one idea: calibration sees the samples of an input and the values of an output, and finds other
ranges for them. A cache that comes out in one scale and goes in again in another would be rounded
anew with every token, and cut off where the samples were small.
"""

from __future__ import annotations

import onnx

from archgen.roles import tell

_ENDS = ("_scale", "_zero_point")
"""What ONNX Runtime calls the quantization of a value."""


def give_states_one_scale(made: onnx.ModelProto, proto: onnx.ModelProto) -> None:
    """Let every state of ``proto`` have, in the quantized ``made``, the scale of the output that it
    becomes, which has seen the old values and the new ones."""
    found = {tensor.name: tensor for tensor in made.graph.initializer}
    for name, role in tell(proto).roles.items():
        for end in _ENDS if role.becomes is not None else ():
            before, after = found.get(f"{name}{end}"), found.get(f"{role.becomes}{end}")
            if before is not None and after is not None:
                before.CopyFrom(after)
                before.name = f"{name}{end}"
