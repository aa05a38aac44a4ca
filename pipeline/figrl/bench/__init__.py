"""Benchmarks: figrl against alternatives, and the rates of the machine."""
