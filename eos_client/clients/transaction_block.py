"""The mid-level interface: a ``with`` block around one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eos_client.clients.transaction import TransactionSession
from eos_client.core.model import Outcome
from eos_client.errors import AbortableError, RebuildProducerError
from eos_client.ports import OutputRecord

if TYPE_CHECKING:
    from typing_extensions import Self


class Transaction:
    """A ``with`` block around one transaction; ``outcome`` and ``reason`` tell how it ended.

    Every record that ``consume`` or ``poll`` returned inside the block counts as processed at its end. SKIPPED means
    the gate is closed: the transaction stays open and the next block goes on with it. ABORTED means that the records
    will be consumed again; when ``produce`` found that out, the block ends there. Any other exception in the block
    aborts, rewinds and is raised again.
    """

    def __init__(self, session: TransactionSession) -> None:
        self._session = session
        self.outcome: Outcome | None = None
        self.reason = "not ended yet"
        self._failure: AbortableError | RebuildProducerError | None = None

    def __enter__(self) -> Self:
        self._session.active = True
        return self

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        **options: Any,
    ) -> None:
        """Write one output; ``options``: ``partition``, ``headers``, ``timestamp_ms`` as in OutputRecord."""
        try:
            self._session.produce(topic, OutputRecord(topic, value=value, key=key, **options))
        except (AbortableError, RebuildProducerError) as error:
            self._failure = error
            raise

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        self._session.active = False
        failure = self._failure if error is self._failure else None
        if failure is not None:
            ending = self._session.recover(failure)
        elif error is not None:
            ending = self._session.abort(f"the block raised {type(error).__name__}: {error}")
        else:
            ending = self._session.end()
        self.outcome, self.reason = ending.outcome, ending.reason
        return failure is not None
