"""The stored graph to an embedding."""
