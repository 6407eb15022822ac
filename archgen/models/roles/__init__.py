"""What each input of a network is for: the data, a state, indices, a mask or a parameter.

The one idea: a role is told by evidence, and the evidence is part of the answer. What operators do
with an input counts first (`axes` follows its axes to the outputs, `indices` follows indices back,
`kinds` looks at who reads it), then the names of its dimensions, its own name last; and a user, or
the file, may say otherwise. Who needs it: `archgen.models.binding` gives a batch only to
axes that carry one, `archgen.check.reference` makes inputs that an operator can take, `archgen
models FILE` shows all of it.

    net.py        the graph as roles see it: one list of nodes, also those of subgraphs
    axes.py       where operators put axes, and how far each one goes: which is the batch, and why
    indices.py    which values the operators that index can take
    kinds.py      what an input is, by who reads it and by its name; what users say: NAME=state,
                  NAME=batch:1, NAME=state::OUTPUT
    infer.py      all of it together: one `Role` for each input
"""

from archgen.models.roles.infer import InferredRoles, infer_roles
from archgen.models.roles.kinds import Role, parse_roles, state_roles

__all__ = ["InferredRoles", "Role", "infer_roles", "parse_roles", "state_roles"]
