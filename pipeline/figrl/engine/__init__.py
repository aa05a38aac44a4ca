"""How blocks run: stages, the runners, worker state, clusters, submitted jobs."""
