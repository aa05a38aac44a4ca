"""Calls of lower rooms as a notebook has them: their errors name arguments."""

from __future__ import annotations

from figrl.analyze import clusters, holes
from figrl.api.words import in_python
from figrl.serve import export as exporting
from figrl.serve import neighbors as searching
from figrl.serve import verify as verifying

export = in_python(exporting.export)
find_clusters = in_python(clusters.find_clusters)
find_holes = in_python(holes.find_holes)
neighbors = in_python(searching.neighbors)
verify = in_python(verifying.verify)
