"""Analysis of embeddings: clusters, structural holes, influence, metrics."""
