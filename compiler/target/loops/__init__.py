"""Loops of vector work before emission: loop passes, and the search for covering instructions.

    fission      an operator as a chain of instructions
    64 x 8 x 8   dst 1 512 64   a 1 512 64      loops with the byte strides of each operand
    collapse     64 x 64 ...                    adjacent loops that all operands walk as one
    partition    a row in equal pieces, or in longest ones and a rest
    runs         pieces of a loop, cut where a condition changes: borders, remainders, ends of sums
    cover        which loops an instruction covers: all ways, the fastest is taken

The one idea: cost model and emission use the same loops and covers, so they cannot disagree.
"""
