"""Studies side by side and over time: differences, gates, budgets."""
