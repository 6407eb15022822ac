"""Outcomes: what became of the points of a study, as values, rows and frames.

points             one point and what became of it; what a study was made of
columns            every column of every frame, terms, headings, stalls: defined once, as data
rows, timeline     metrics and traces as rows; one run over time
commands           the commands of a program as a frame and as text
frame, figures     outcomes to DataFrames; figures as people name them, conditions on them
axes               what a study varies; what each row has of it
bottleneck         what held a run up
insensitive        what was swept in vain, and what binds there
fronts, estimated  which of several costs are the best; estimates beside runs
"""
