"""Rows of tall matrices, a piece at a time: read ahead, written behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from figrl.engine.worker import worker_state
from figrl.store.matrix import Floats, StoredMatrix, open_matrix
from figrl.store.overlap import WriteBehind, read_ahead


def chunks_of_rows(matrix: StoredMatrix, start: int, stop: int, height: int) -> Iterator[Floats]:
    """Rows of a matrix, `height` at a time; the next ones are read while some are used.

    They are not to be written to: rows of a small matrix are those of the system's cache.
    """
    if matrix.is_cached and matrix.chunks[0] % height == 0 and matrix.slices == 1:
        return (
            matrix.mapped(begin, min(begin + height, stop)) for begin in range(start, stop, height)
        )
    buffers = worker_state().buffer_pair("in", (min(height, stop - start), matrix.shape[1]))

    def load(begin: int, turn: int) -> Floats:
        end = min(begin + height, stop)
        return matrix.read((begin, 0), buffers[turn][: end - begin])

    return read_ahead(load, range(start, stop, height))


def write_pieces(
    paths: Sequence[Path], start: int, stop: int, height: int, fill: Callable[[int, Floats], None]
) -> int:
    """Write the same rows to matrices of one shape; return the bytes.

    ``fill(begin, out)`` computes `height` rows from `begin` on; chunks are one or more of these
    pieces tall.
    """
    outs = [open_matrix(path) for path in paths]
    width, tall = outs[0].shape[1], max(out.chunks[0] for out in outs)
    buffers = worker_state().buffer_pair("out", (min(tall, stop - start), width))
    with WriteBehind() as write:
        for number, begin in enumerate(range(start, stop, tall)):
            end = min(begin + tall, stop)
            tile = buffers[number % 2][: end - begin]
            for low in range(begin, end, height):
                fill(low, tile[low - begin : min(low + height, end) - begin])
            write(_write_all, outs, begin, tile)
    return len(outs) * (stop - start) * width * 4


def _write_all(outs: Sequence[StoredMatrix], start: int, rows: Floats) -> None:
    for out in outs:
        out.write((start, 0), rows)
