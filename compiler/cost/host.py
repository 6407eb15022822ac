"""What a call of the host takes: the instruction's own cycles, on whole tensors in DRAM.

Nothing else goes on meanwhile: its inputs have to be there, and what follows reads what it makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from compiler.nest.ir import HostNode, Tensor
from simmodel.arch import Arch
from simmodel.isa import HostCall
from simmodel.region import Address, Operand


def host_cycles(node: HostNode, tensors: Mapping[str, Tensor], arch: Arch) -> int:
    """Cycles of the core's clock from the call to its last byte; none where nobody is called."""
    if node.pick is not None:
        return 0

    def whole(names: Iterable[str]) -> tuple[Operand, ...]:
        found = (tensors[name] for name in names)
        return tuple(
            Operand("dram", Address(0), t.shape, t.storage.strides, t.dtype) for t in found
        )

    call = HostCall(
        payload=0, inputs=whole(node.inputs), outputs=whole(node.outputs),
        operations=node.operations,
    )  # fmt: skip
    return call.startup(arch) + call.cycles(arch)
