"""Loops before they become instructions: passes over them, and the search for what covers them.

    fission      an operator as instructions that follow each other
    64 x 8 x 8   dst 1 512 64   a 1 512 64      loops as an instruction's operands walk them
    collapse     64 x 64 ...                    what all walk as one
    partition    a row in equal pieces, in longest ones and a rest
    runs         pieces of a loop, cut where a condition changes: borders, remainders, ends of sums
    cover        which loops an instruction walks itself: all ways, the quickest is taken

The one idea: what vector instructions are expected to take and what they are made of is asked here,
with the same loops, so the two cannot part.
"""
