"""The retargeted compiler: ONNX model and architecture in, verified instruction streams out.

Its packages, in the order of the flow; each imports only those above it (a contract checks that):

    graph      ONNX graphs: cleaned, quantized operators joined, shapes known
    nest, ops  operators as loop nests over tensors; how each ONNX operator becomes one
    binding, layer, group, schedule
               values: a nest's engine, nests that share tiles, layers that share loops, how a
               group is cut
    fuse       strategies that form groups
    geometry   which elements a tile needs, cuts over cores, what these hand over, the walk over all
               tiles
    cost       what transfers and operands take
    bind       what this machine does with a nest: engine, axes, memories, layouts
    hold       buffers on chip, and what a group holds in them
    keepable, slices, keep, homes
               where tensors lie between groups, and what each core keeps of them
    tile       the search for schedules, and their prices
    plan       buffers and steps of a schedule
    alloc      addresses
    emit       instructions, synchronization, order

`stages` lists the passes on one page; `driver` calls them; `decisions` remembers what they chose,
by what of the machine was read (`seen`); `search` chooses among programs by a judge that it is
given; `attainable` says what no schedule undercuts, `elsewhere` what products take on other
machines; `api` is all that others see of the compiler.
"""
