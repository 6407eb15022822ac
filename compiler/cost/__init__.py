"""What moving and computing take: rates, transfers, operands."""
