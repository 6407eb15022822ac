"""Instructions, one class per family member: engine, cycles, traffic, effect, text."""
