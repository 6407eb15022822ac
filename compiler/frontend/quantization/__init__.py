"""Quantized operators, and where conversions stand."""
