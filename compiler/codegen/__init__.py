"""From a schedule to instruction streams."""
