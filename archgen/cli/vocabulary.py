"""Words that tables, pictures and pages use and no other topic defines: terms, and headings.

The one idea: a reader looks up what stands in front of them. Columns of frames, fields of files and
rules have their meaning where they are defined; what is only printed has it here, and a test walks
over every heading to see that none is left out.
"""

from __future__ import annotations

from collections.abc import Mapping

TERMS: Mapping[str, str] = {
    "roofline": "least time of a network on a machine: the longer of its MACs at the peak rate and "
    "its compulsory DRAM bytes at the peak rate of DRAM. `efficiency` is that over the time taken",
    "bound": "what no schedule undercuts. `bound` says which side of the roofline is the longer; "
    "`bound_cycles` is a tighter one that knows arrays and sizes on the chip, `bound_by` what sets "
    "it. Of a lever: the most that it can save with the same program",
    "ridge": "MACs for each DRAM byte at which a machine's two peaks take equally long: networks "
    "with fewer are bound by bandwidth, those with more by its multipliers",
    "intensity": "MACs for each byte of DRAM traffic: where a point stands on a roofline's axis",
    "traffic": "bytes that a run moves: of DRAM `dram_read_bytes` and `dram_write_bytes`, in whole "
    "bursts; compulsory are inputs, constants and outputs once, the rest was loaded again or "
    "spilled",
    "working set": "the results of layers that are alive at once, in the order that needs least: "
    "`working_set_bytes`",
    "knee": "the least value of a field from which on nothing larger makes a point more than 5 % "
    "better: what is enough. A curve whose last value still gains more has none",
    "pareto / pareto front": "the points that no other one beats in all of two or more figures; "
    "of an exploration, in its objectives",
    "lever / levers": "a change of the machine that makes its runs quicker, with what it saves, "
    "how that is known (measured, simulated, compiled anew, estimated, at most) and what it costs: "
    "in report.html, the most promising first",
    "measured": "how a lever's gain is known: the study itself has the changed machine",
    "simulated": "how a lever's gain is known: the program of the run ran on the changed machine. "
    "Of cycles: by the event model, not by the estimate",
    "compiled anew": "how a lever's gain is known: a program was made for the changed machine at "
    "effort 0, and compared with what that makes of the machine as it is",
    "at most": "how a lever's gain is known: a bound that nobody tried, seldom reached",
    "baseline": "what others are compared with: of `compare` the first study, of a report the "
    "first machine that has most workloads",
    "group": "layers that share a loop over tiles, so that what they hand each other stays on chip",
    "tile": "the part of a layer that is worked on at once; its operands are on the chip",
    "halo": "rows that two tiles both need of a layer's input: kept, loaded or computed again",
    "stall": "a cycle in which an engine did not compute; each has one cause: `archgen explain "
    "stalls`",
    "waterfall": "from the bound to the run: what its cycles went to, or were waited for",
    "point": "one network at one batch and element type on one machine, compiled in one way",
}
"""Terms: what they mean wherever they stand."""

_STUDY, _REPORT, _COMPILE = "study", "report.html", "compile --report"
HEADINGS: Mapping[str, tuple[str, str]] = {
    "#": (f"{_COMPILE}; {_REPORT}", "place in the order of the program"),
    "-> ms": ("compare", "latency afterwards, in ms"),
    "absent": ("isa", "why the machine lacks the form"),
    "accum.": ("check", "B/cycle that the accumulators of a core carry"),
    "address": (_COMPILE, "first byte of the buffer in its memory"),
    "adds": (_COMPILE, "cycles that the group is estimated to take beyond those before it"),
    "alone": (_REPORT, "change of the metric by the first of two fields"),
    "architecture": ("study, check", "name of the machine"),
    "area": (f"{_REPORT}; explain area", "mm2 of the chip with its interface to DRAM; its change"),
    "at the higher": (_REPORT, "change of the metric at the next value above the machine's own"),
    "at the lower": (_REPORT, "change of the metric at the next value below the machine's own"),
    "batch": (_STUDY, "samples of one inference"),
    "batch axis": ("models", "dimension of an input or output that counts samples"),
    "best rejected": (_COMPILE, "the best other option of the decision"),
    "bound": (_REPORT, "the longer side of the roofline: compute or bandwidth"),
    "bound by": (_STUDY, "the resource that sets the least time: column bound_by"),
    "buffer": (_COMPILE, "name of what is held in a memory on the chip"),
    "bytes": (_COMPILE, "size of the buffer, of all its slots"),
    "change": (_REPORT, "what is changed of the machine; of a ladder, of the metric against the "
               "machine as it is"),
    "choice": (_REPORT, "how the point was compiled, as far as points differ in that"),
    "chosen": (_COMPILE, "cycles of what was taken, as estimated"),
    "clock": (_REPORT, "GHz of the cores"),
    "compared": (_REPORT, "values that were compared with ONNX Runtime's"),
    "compile": (_REPORT, "seconds of compiling"),
    "constants": (_COMPILE, "weights of the layer: bytes, how often they are loaded, and where to"),
    "cores": (f"check; {_COMPILE}", "cores of the chip; how a group is split over them"),
    "cycles": (f"{_COMPILE}; {_REPORT}", "core cycles of the run, the layer or the form"),
    "cycles per vector": ("isa", "cycles that as many elements as the engine has lanes take"),
    "decision": (_COMPILE, "what the compiler had to decide about the group"),
    "description": ("models", "what the network is"),
    "dram": (f"check; {_REPORT}", "B/cycle or GB/s at its peak; of points MB read and written; of "
             "bounds the share of the time that its bytes take at its peak rate"),
    "dram mb": (_COMPILE, "MB read from and written to DRAM"),
    "dram bytes": ("compare", "bytes read from and written to DRAM, afterwards over before"),
    "dram read": (_REPORT, "KB that the layer reads from DRAM"),
    "dram read mb": (_STUDY, "MB read from DRAM: column dram_read_bytes"),
    "dram write": (_REPORT, "KB that the layer writes to DRAM"),
    "efficiency": (_REPORT, "TOPS/W that the run reached: column tops_per_w"),
    "elasticity": (f"sensitivity, explain area; {_REPORT}", "per cent of the metric, or of area, "
                   "for one per cent of the field"),
    "end to end": (_REPORT, "largest difference of an output from one run of the reference; not "
                   "judged"),
    "energy": (f"{_REPORT}; compare", "mJ of the run, DRAM included, host left out; of a change "
               "its share"),
    "energy of an event": ("explain area", "change of what an event costs, by event"),
    "engine": (_COMPILE, "which engine of the core works for the layer"),
    "enough": (f"sensitivity; {_REPORT}", "the value after which more no longer helps"),
    "estimated": (f"{_COMPILE}; {_REPORT}", "cycles or ms by the cost model, without a program"),
    "chosen as": (_STUDY, "why estimates have it run: column chosen_as"),
    "estimated ms": (_STUDY, "latency by the cost model: column estimated_ms"),
    "event or part": ("check --energy", "what costs energy, or has area or leakage"),
    "evidence": ("models", "what an input's role was told by"),
    "field": ("sensitivity, explain area", "dotted name of a field of the architecture file"),
    "figure": ("check --energy", "what the event or part costs"),
    "finished": ("study --dry-run", "status of the point, where its result is there already"),
    "for": (_COMPILE, "what the buffer holds: a result, constants, something to work in"),
    "form": ("isa", "instruction or one of its variants, as a file names it"),
    "from": ("check --energy, explain area", "where the figure is from; the field as it is"),
    "gain": (_REPORT, "of the metric, by the step from the value before"),
    "ghz": ("check", "clock of the cores"),
    "group": (_REPORT, "layers that share a tile loop"),
    "halo": (_COMPILE, "what becomes of rows that neighbouring tiles share"),
    "held by": (f"study; {_REPORT}", "what the time above the bound went to: column held_by"),
    "high": ("check --energy", "upper end of the figure's range"),
    "higher": (f"sensitivity; {_REPORT}", "the next value above the machine's own"),
    "host ops": (_STUDY, "operators that the host runs: column host_ops"),
    "inner loops": (_COMPILE, "extents of one tile, as the engine walks them"),
    "interaction": (_REPORT, "what two changes bring together beyond the sum of both"),
    "largest error": (_REPORT, "largest difference from ONNX Runtime over what is allowed; above 1 "
                      "is wrong"),
    "largest step": (_REPORT, "largest difference of an integer from ONNX Runtime's"),
    "largest wait": (_REPORT, "cause that matrix engines wait for longest, and its share"),
    "latency": (f"{_REPORT}; compare", "time of one inference; of a comparison afterwards "
                "over before"),
    "layer": (_COMPILE, "place of the layer in its group"),
    "layer, engine and forms": (_COMPILE, "a layer, and the instruction forms that it takes"),
    "layers": (_COMPILE, "how many layers the group has; during which of them a buffer is held"),
    "leakage": ("explain area", "change of what leaks"),
    "least": (_REPORT, "cycles that no schedule undercuts: column bound_cycles"),
    "limits": ("isa", "largest extents, ranks and types of the form"),
    "local": (f"check; {_COMPILE}", "B/cycle of the local memory, or bytes of it in use"),
    "local kib": (_STUDY, "most of the local memory in use, worst core: column peak_local_bytes"),
    "local peak": (_REPORT, "KiB of local memory in use at most, worst core"),
    "longer by at most": (_REPORT, "share by which a run gets longer with half of that"),
    "low": ("check --energy", "lower end of the figure's range"),
    "lower": (f"sensitivity; {_REPORT}", "the next value below the machine's own"),
    "machine": (_REPORT, "name of the architecture"),
    "macs": (_REPORT, "multiply-accumulates of the layer"),
    "matrix busy": (_REPORT, "share of the time that matrix engines compute, of the busiest core"),
    "matrix use": (f"study; {_REPORT}", "MACs over what the matrix engines could do meanwhile: "
                   "column matrix_utilization"),
    "meaning": ("isa, explain", "what it does, or means"),
    "memory": (_COMPILE, "which memory on the chip the buffer is in"),
    "mm2": ("explain area", "change of the area"),
    "mm2 +dram": ("check", "area without, and below it of, the interface to DRAM"),
    "mmacs": ("models", "millions of multiply-accumulates of an inference"),
    "model": (_STUDY, "network: zoo name with options, or file"),
    "mparameters": ("models", "millions of weights"),
    "ms": ("study, compare", "latency of one inference in ms: column latency_ms"),
    "name": ("models", "of the network, or of an input or output"),
    "nm": ("check", "technology node: energy.node"),
    "node": (_REPORT, "of a machine its technology in nm; of a layer its node in the network"),
    "nodes": (_COMPILE, "nodes of the network in the group or layer"),
    "of area": (_REPORT, "TOPS/mm2 that the run reached: column tops_per_mm2"),
    "of bound": (_STUDY, "least time over the time: column of_bound"),
    "of least": (_REPORT, "least time over the time: column of_bound"),
    "of roofline": (f"study; {_REPORT}", "roofline's time over the time: column efficiency"),
    "off": (_COMPILE, "how far the estimate of the group is from what was simulated"),
    "on chip": (f"check; {_REPORT}", "bytes of all memories of the chip"),
    "on host": (_REPORT, "operators that the host runs"),
    "on the array, largest tile": (_COMPILE, "how a tile of the layer lies on rows and columns"),
    "operator": (f"{_COMPILE}; {_REPORT}", "operator of ONNX"),
    "options": ("models", "options of the network and their defaults"),
    "own": (f"sensitivity; {_REPORT}", "what the machine itself has; of a value, whether it is "
            "that"),
    "peak": (_REPORT, "TOPS in the preferred type; a multiply-accumulate counts two"),
    "peak local": ("compare", "local memory in use at most, afterwards over before"),
    "peak shared": ("compare", "shared memory in use at most, afterwards over before"),
    "per area": (_REPORT, "samples/s for each mm2"),
    "per gb/s": (f"sensitivity; {_REPORT}", "what the step up gains of the metric for each further "
                 "GB/s of DRAM"),
    "per joule": (_REPORT, "samples for each joule, against the baseline"),
    "per mm2 / per mm²": (f"sensitivity; {_REPORT}", "what the step up gains of the metric for "
                         "each further mm2; nothing where it takes hardly any"),
    "per sample": (_REPORT, "mJ of one sample"),
    "power": (_REPORT, "average W over the run"),
    "quantization": (_REPORT, "how the network became integers"),
    "range": (_REPORT, "with every figure at the low, and at the high end of its range"),
    "rank": (_REPORT, "place among the machines, by speed over all workloads"),
    "reason": (_REPORT, "why there is no result"),
    "rejected": (_COMPILE, "forms that the layer could have taken"),
    "rests on": (_REPORT, "the figures that a lever's gain follows from"),
    "result goes to": (_COMPILE, "where the layer leaves its result, and its shape"),
    "results": (_REPORT, "workloads with a result"),
    "ridge mac/b": ("check", "MACs for each DRAM byte where both peaks take equally long"),
    "role": ("models", "what an input is: data, state, indices and the like"),
    "samples": ("models", "what the input is filled with"),
    "samples/s": (_STUDY, "inferences a second times batch: column throughput_ips"),
    "saves": (_REPORT, "share of the time that a lever saves, and how that is known"),
    "schedule": (_COMPILE, "the one by hand, or the compiler's own"),
    "schedule from": (f"study; {_REPORT}", "machine with no more hardware whose quicker schedule "
                      "the point runs"),
    "set by": (_REPORT, "the resource that sets the least time: column bound_by"),
    "shape": ("models", "extents of an input or output"),
    "share": (_COMPILE, "of the run's cycles"),
    "share of time": (_REPORT, "its group's time, shared out by the cycles that engines worked"),
    "shared": ("check", "B/cycle that the shared memory carries"),
    "simulate": (_REPORT, "seconds of the event simulation"),
    "simulated": (_COMPILE, "cycles on the event model"),
    "slots": (_COMPILE, "how many times the buffer is there: two where one is filled meanwhile"),
    "span": (_COMPILE, "cycles from the group's first instruction to its last"),
    "speed": (_REPORT, "1 / latency against the baseline"),
    "start": (_REPORT, "cycle of the layer's first instruction"),
    "status": (f"study; {_REPORT}", "ok, estimated, does not fit, unsupported, timeout or failed"),
    "study": ("compare", "which of the studies the row is of"),
    "taken": (_COMPILE, "what the compiler chose"),
    "the other alone": (_REPORT, "change of the metric by the second of two fields"),
    "throughput": (_REPORT, "samples a second"),
    "tiles": (_COMPILE, "how many there are along each axis"),
    "to": ("explain area", "value of the field as it was changed"),
    "together": (_REPORT, "change of the metric by both fields"),
    "tops": ("check", "peak by element type; a multiply-accumulate counts two"),
    "total": (_REPORT, "area or energy of all parts"),
    "tried alone": (_COMPILE, "a part of the group that was compiled and simulated by itself"),
    "type": ("models", "element type of an input or output"),
    "unit": ("check --energy, explain", "of the figure"),
    "value": (_REPORT, "of the field on this step"),
    "vector busy": (_REPORT, "share of the time that vector engines compute, of the busiest core"),
    "verdict": ("compare", "better, worse, mixed or same; lost and gained: a result that only one "
                "study has"),
    "verified": (f"study; {_REPORT}", "whether what the instructions compute agrees with ONNX "
                 "Runtime"),
    "verify": (_REPORT, "seconds of executing the instructions and comparing"),
    "weights": ("check", "B/cycle that the weight memory of a core carries"),
    "where the cycles went": (_COMPILE, "from the bound to the run: archgen explain waterfall"),
    "with": (_REPORT, "the second of two fields that were changed together"),
    "without dram": (_REPORT, "mm2 without what stands on the chip for DRAM"),
    "working set": (_REPORT, "KiB of results alive at once, on the whole chip"),
    "workload": (_REPORT, "network at a batch, element type and sizes of its dimensions"),
    "would be": (_COMPILE, "cycles of what was rejected, as estimated"),
    "write mb": (_STUDY, "MB written to DRAM: column dram_write_bytes"),
}  # fmt: skip
"""Headings of tables, lower case and in one line -> where they stand, and what is below them."""
