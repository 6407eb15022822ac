"""Loops of vector work before emission: an operator as a chain of instructions, neighbouring loops
as one, rows in pieces, and which loops an instruction covers. Cost model and emission use the same.
"""
