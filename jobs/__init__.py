"""Batch jobs: options, one call of the pipeline, an exit code."""
