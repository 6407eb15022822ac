"""The description of a machine: its parts, their fields and units, and the rules between them."""
