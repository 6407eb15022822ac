"""What each input of a network is for: the data, a state, indices, a mask or a parameter.

The one idea: a role is told by evidence, and the evidence is part of the answer. What operators do
with an input counts first (`axes` follows its axes to the outputs, `indices` follows indices back,
`kinds` looks at who reads it), then the names of its dimensions, its own name last; and a user, or
the file, may say otherwise. Who needs it: `archgen.models.binding` gives a batch only to
axes that carry one, `archgen.check.reference` makes inputs that an operator can take, `archgen
models FILE` shows all of it.
"""

from archgen.models.roles.infer import InferredRoles, infer_roles
from archgen.models.roles.kinds import Role, parse_roles, state_roles

__all__ = ["InferredRoles", "Role", "infer_roles", "parse_roles", "state_roles"]
