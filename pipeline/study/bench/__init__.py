"""Ours and the alternatives in one go, each in a process of its own."""
