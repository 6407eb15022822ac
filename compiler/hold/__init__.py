"""What stays on chip: buffers of a group, and room for what lies there."""
