"""Energy and area: what a run costs in joules, and a chip in square millimetres.

Counts come from the program and its trace (`events`), figures from `table.yaml` (`table`), scaled
to the architecture's node (`scaling`, `sram`, `area`, `costs`); `model` multiplies the two. Figures
of memories may come from elsewhere (`sources`). Everything has a stated range (`ranges`). What
needs no run is given here; `model.energy_of` is not, as counting events imports every instruction.
"""

from archgen.energy.costs import EnergyCosts, costs_of

__all__ = ["EnergyCosts", "costs_of"]
