"""Prefetches a slot's rows while its producer starts, so that the stages before it go on working."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_BYTES_MAX = 16_000_000


def prefetch_until(batches: Iterator[pa.RecordBatch], started: Future[Any]) -> deque[pa.RecordBatch]:
    """Return the batches that come until ``started`` is done, or until they hold 16 MB."""
    prefetched: deque[pa.RecordBatch] = deque()
    size = 0
    while size < _BYTES_MAX and not started.done():
        batch = next(batches, None)
        if batch is None:
            break
        prefetched.append(batch)
        size += batch.nbytes
    return prefetched


def drain(prefetched: deque[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches in order and free each one as it is yielded."""
    while prefetched:
        yield prefetched.popleft()
