"""A run as a file that the Perfetto viewer opens (`document`); levels over time (`counters`)."""

from archgen.perfetto.document import compressed, trace_bytes, write_trace

__all__ = ["compressed", "trace_bytes", "write_trace"]
