"""Data on disk: files, arrays, matrices, ids, the stored graph, locks. No Dask."""
