"""What a machine does with a nest: engine, operand layouts, legal forms."""
