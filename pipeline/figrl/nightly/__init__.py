"""The nightly re-indexing: checks, gates, report, metrics."""
