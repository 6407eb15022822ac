"""Studies: machines x networks x options to finished points, none of which is ever lost.

In the order of the flow; each module imports only those above it:

    sections, file     the YAML of study files as records
    design, plan       machines, networks and options as values, and the points they make
    run, estimate      one point from model to row; what the cost model says of one
    store              finished points on disk
    workers, executors, pool
                       who runs points: this process, others, a cluster; many at once
    dominance, lending schedules that larger machines take from smaller ones
    results            finished studies: frames, pictures, and how they are found again
    sweep              all of it: stored points are taken, the others are run
    query, differences, comparison
                       rows by conditions; what changed between two studies
"""
