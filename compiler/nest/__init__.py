"""Tensor expressions: one tileable operator each, its meaning and its bounds."""
