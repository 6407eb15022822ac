"""Studies: machines x networks x options to finished points, none of which is ever lost.

In the order of the flow; each module imports only those above it:

    file               the YAML of study files as records
    design, plan       machines, networks and options as values, and the points they make
    store              finished points and decisions of the compiler on disk
    prepare, run       one point from model to row; what the cost model says of one
    workers            who runs points: this process, others; many at once
    schedule_transfer  schedules that larger machines take from smaller ones
    query, results     rows by conditions; finished studies and how they are found again
    sweep              all of it: stored points are taken, the others are run, or estimated
"""
