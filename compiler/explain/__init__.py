"""What the compiler decided and why, as data and as text."""
