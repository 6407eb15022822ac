"""Target: how a machine runs a nest: engine, operand layouts, legal forms."""
