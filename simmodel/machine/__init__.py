"""The machine floor: a SimPy model of one architecture that runs one program.

The rules of its time, in enough detail to work out any small program by hand. One test per number
stands in tests/simmodel/test_laws.py.

1.  CLOCK. Time is whole core-clock cycles from 0. What happens in one cycle happens in order of
    insertion, so two runs of a program give the same trace.
2.  ISSUE. The front end issues instructions in stream order. The first is issued in cycle 0, or
    when the host is ready (15), each next one `interval` cycles later, where interval = max(1 /
    issue_width, bytes of the instruction / fetch bandwidth). These bytes are instruction_bytes or,
    where a machine says instead how fields are packed (`encoding`), what the fields take. With
    `bundle` neighbours of different engines in straight-line code are one word: they are issued in
    one cycle, and intervals lie between words. A word has instruction_bytes, where stated, else the
    bytes of all in it. Where `loop_buffer` holds all bytes of a loop's body (words, and one command
    for each loop inside), its turns but the first need no fetch. Fractions add up exactly; an
    instruction is issued in the cycle that its time falls into (rounded down), and may start in
    that cycle.
3.  QUEUES. Each engine has a queue of `queue_depth` slots, the host one for the chip. An
    instruction takes a slot when it is issued and frees it when it starts. The front end waits for
    a slot with everything behind it; it goes on in the cycle in which the slot is freed, and
    `interval` counts from there.
4.  START. An engine runs one instruction at a time, in the order of its queue. One starts when it
    heads the queue, the previous one has ended, it has been issued, and its tokens have been
    taken, one after another in the order of `waits`. Whoever waits for a token first gets it
    first. Tokens that an instruction signals are visible in the cycle in which it ends.
5.  DURATION. start-up + max(cycles, time of the traffic), rounded up to a whole cycle. The traffic
    begins when the start-up is over. Its bytes are spread evenly over the work: an instruction
    that gets a share of the bandwidth it could use is slowed down by that share as a whole.
    Synchronization instructions (Sync, Arrive, Await, Claim) take no time. An engine of `engines`
    runs vector instructions with its own lanes, costs and start-up, beside the vector engine, or,
    as an array, matrix instructions with its own shape, rates and start-up, beside `matrix`. Two
    functions that the lanes chain (`isa.chains`) are one instruction, with the cycles of the dearer
    and no traffic in between; a look-up fills its table (`vector.table`) in its start-up.
6.  ROUTES. The bytes of each operand (`Instruction.traffic`) go through their memory: all of DRAM
    is one resource for both directions; the ports of an on-chip memory are one resource per
    instance where banks are interleaved, one per bank where they are blocked (bytes in equal parts
    to the banks touched), each per direction where reads and writes have ports of their own.
    Copies cross every link from the source's role to the target's: the source's bytes, once. A
    broadcast writes its bytes into each target. A duplex bus is one resource per direction
    (outward: towards shared memory or DRAM), else one. On a mesh, torus or ring each link between
    neighbours is a resource, per direction where it is duplex. A copy takes those on its way, which
    goes along the last dimension of `shape` first, round a torus or ring the shorter way, or upward
    where both are as long; a broadcast takes each once. What belongs to no core comes from all
    `ports` in equal parts, or goes to all. `latency` counts for each hop of the longest way.
7.  SHARING. Instructions that together demand more of a resource than it has share it max-min
    fairly: equal bytes per cycle for each, but none more than it can use. Shares change only when
    traffic starts or ends. With several crowded resources: whoever no share holds back is settled
    first, then a resource that holds back all that remain on it, else (first by name among equals)
    the one that holds back the slowest.
8.  CONFLICTS. While k > 1 instructions have traffic in one bank, its bytes per cycle are divided by
    1 + conflict_penalty; with interleaved banks those of the memory by 1 + conflict_penalty *
    min(1, (k - 1) / banks).
9.  DRAM, and flash, which is a resource of its own. A copy pays the latency once, in its start-up,
    and runs no faster than outstanding * request bytes per latency, nor than one request per
    per_request; with joins_runs: false the bytes of a request are those of a run at most. It takes
    `minimum` at least. Each contiguous run moves whole bursts. Long transfers get bandwidth *
    efficiency; each run takes run_cost of one channel more; while k > 1 transfers meet, the rate is
    divided by 1 + conflict_penalty * min(1, (k - 1) / channels).
10. INTERLOCK. On machines without tokens an instruction starts only when no earlier one of its core
    is unfinished whose operands overlap its own, one of the two being written. Operands count with
    their bounding range of addresses, in every memory.
11. BARRIERS. `Arrive` counts when it heads its queue and the previous instruction has ended;
    `Await` waits until the last arrival and lets its queue go on in that cycle. A barrier stays
    open.
12. OVERLAP AND BURSTS. Where an engine overlaps neighbours, an instruction that was issued earlier
    and starts in the cycle in which its like ended takes fewer cycles (`Instruction.overlap`):
    its first part ran behind the predecessor. A site that repeats n times
    (`Site.times`) is simulated as one entry. Alone, each of the n takes d = start-up + max(cycles
    less overlap, traffic alone); item k starts at max(s + k d, issue of item
    k), with s the start of the first, and everything else follows rules 2 to 4 item by item, so
    the result is that of n instructions. The traffic of all follows the first start-up at its
    average rate, so only under contention a burst differs from n instructions; the front end then
    takes the starts of items as they would be without.
13. ACCOUNTS. Each cycle of each engine up to the end of the program is busy (start-up + cycles of
    each instruction) or idle for one cause of `simmodel.trace.CAUSES`. A wait counts for the cause
    of the one who ended it, waits before the first instruction that does work as `fill`; what an
    instruction takes beyond its own cycles as `conflict` or `bandwidth`, after the resource that
    held it back, in proportion to the work each kept it from.
14. SILENCE. When nothing can happen any more and instructions are left, the run ends with
    `Deadlock`, which lists every waiting queue head and front end.
15. HOST. One host serves all cores, in the order in which they issued; its calls wait for and
    signal tokens of the core that issued them. Before the first instruction it is busy for
    host.per_inference and, where the memory in DRAM's place is on the chip, for the bytes of all
    inputs and outputs at host.bandwidth; all engines wait for it (`core`).
16. SIGNALS BETWEEN CORES. An instruction may give tokens of other cores too (`notifies`), as often
    as it runs. They are visible `front_end.signal` after the cycle in which it ends; whoever waits
    for one waits for another core. Order is that of the giver's queue: of two notices the first
    arrives first. They are the only order, besides barriers, between what different cores touch,
    on machines with an interlock too: it watches the instructions of its own core. For bytes that
    another core writes these have a `Claim`: it moves nothing, and law 10 takes its operand as
    written.
"""
