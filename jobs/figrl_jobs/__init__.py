"""Batch jobs: options, one call of the library, an exit code."""
