"""What this machine does with a nest: its engine, axes, memories and layouts."""
