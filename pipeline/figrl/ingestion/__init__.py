"""Edges in any form to the stored graph."""
