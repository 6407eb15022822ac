"""The order in which a core's instructions are issued."""
