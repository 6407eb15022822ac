"""Energy and area: what a run costs in joules, and a chip in square millimetres.

Counts come from the program and its trace (`events`), figures from `table.yaml` (`table`), scaled
to the architecture's node (`scaling`, `sram`, `area`, `costs`); `model` multiplies the two. Figures
of memories may come from elsewhere (`sources`). Everything has a stated range (`ranges`).
"""

from archgen.energy.costs import Costs, costs_of
from archgen.energy.model import Energy, energy_of

__all__ = ["Costs", "Energy", "costs_of", "energy_of"]
