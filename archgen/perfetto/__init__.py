"""A run as a file that the Perfetto viewer (ui.perfetto.dev) opens; see docs/trace.md.

    packets   tracks, slices, counters and arrows
    tokens    levels of tokens, and who waited for whom
    counters  memories, bandwidths, queues and tokens over time
    document  the file: cores as processes, engines as threads

Protocol buffers, not Chrome's JSON: they have units, order and nesting of tracks, and a published
schema, against which a test can hold every field.
"""

from archgen.perfetto.document import compressed, trace_bytes, write_trace

__all__ = ["compressed", "trace_bytes", "write_trace"]
