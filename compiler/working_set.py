"""How much memory on chip holds all that passes between layers, so that nothing is spilled.

The one idea: a schedule layer by layer keeps each result from the layer that makes it to the last
one that reads it. The most that is alive at once, in the order of layers that needs least, is the
network's working set. With memory for it, and for the tiles and weights of the layer at work beside
it (`KeepTensors.share`), nothing is spilled, whatever the tiles. Layers that share tiles hold rows
of what passes between them only, and get by with less.

Constants and the network's inputs come from DRAM in any case and do not count.
"""

from __future__ import annotations

from compiler.driver import CompileResult
from compiler.fuse.dependence import dependences
from compiler.fuse.reorder import Reorder


def working_set(result: CompileResult) -> int:
    """Bytes of the network that was compiled, in its element types on that machine."""
    assert result.search is not None
    return Reorder().apply(dependences(result.search.parts, result.search.graph)).peak
