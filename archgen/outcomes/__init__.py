"""Outcomes: what became of the points of a study, as values, rows and frames.

point, about       one point and what became of it; what a study was made of
columns            every column of every frame: unit and meaning, defined once
rows, timeline     metrics and traces as rows; one run over time
frame              outcomes to DataFrames
held, axes         what each row has of what a study varies; the axes that its points lie on
stalls             causes of idle time, in words
flat               what was swept in vain, and what binds there
conditions, fronts conditions on figures; which of several costs are the best
cover              which few of many points speak for all
"""
