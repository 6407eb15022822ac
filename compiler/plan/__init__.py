"""Which engine does what on which buffer, step by step."""
