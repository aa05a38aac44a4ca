"""The experiments of the paper, and baselines."""
