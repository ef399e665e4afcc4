"""Leaves the group and closes the client library, within a limit: what is not through by then is left behind."""

from __future__ import annotations

from collections.abc import Callable

from eos_client.confluent.consumer.fetched_records import FetchedRecords
from eos_client.confluent.consumer.library_consumer import LibraryConsumer
from eos_client.confluent.consumer.membership import Membership
from eos_client.confluent.consumer.safe_close import close_in_time
from eos_client.confluent.thread_ownership import ThreadOwnership
from eos_client.ports import Clock


class Closing:
    """The end of a consumer. ``sync``: what is done before the group is left, so that open work can be committed."""

    def __init__(
        self,
        library: LibraryConsumer,
        membership: Membership,
        records: FetchedRecords,
        ownership: ThreadOwnership,
        sync: Callable[[], None],
        report: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._library = library
        self._membership = membership
        self._records = records
        self._ownership = ownership
        self._sync = sync
        self._report = report
        self._clock = clock
        self._left_behind = False

    def close(self) -> None:
        """Leave the group, close the library, and raise what callbacks of the application have raised meanwhile.

        A second call goes on where a signal handler has broken off the first one.
        """
        if not self._membership.is_closed:
            self._prepare_to_leave()
        if not self._library.close_has_begun:
            self._close_library_in_time()
        if report := self._library.guard.take_report():
            self._report(report)
        self._library.guard.raise_kept()

    def _prepare_to_leave(self) -> None:
        self._library.guard.begin_close()
        try:
            self._sync()
        except BaseException as error:  # noqa: BLE001  # raised again at the end: whatever it is, the group is left
            self._library.guard.keep(error)
        self._membership.leave_before_close()
        self._records.clear()

    def _close_library_in_time(self) -> None:
        limit_s = self._library.close_limit_s
        try:
            if not close_in_time(self._ownership.lent(self._library.close_once), limit_s, self._clock):
                self._left_behind = True
                self._report(self._what_is_left_behind(limit_s))
        finally:
            self._ownership.disown()

    @property
    def was_left_behind(self) -> bool:
        """Whether the client library did not let go in time, so leaving the group was not confirmed."""
        return self._left_behind

    def _what_is_left_behind(self, limit_s: float) -> str:
        stays = f"within {limit_s:g} s. Its thread and connections stay to the process's end"
        if self._library.may_keep_a_record:
            return (
                f"close() did not let go of the client library {stays}: a callback or a signal handler has raised "
                "inside consume(), after which the library may keep one record that nobody was given, and wait for it "
                "in its close(). It was asked to leave the group before that. No committed offset counts the record: "
                "the next owner of its partition reads it"
            )
        session_ms = self._library.settings.get("session.timeout.ms", "of the group's")
        if self._membership.stays_a_member:
            return (
                f"close() did not let go of the client library {stays}. The group keeps the place of this static "
                f"member, as after every close(), until its session ({session_ms} ms) is over"
            )
        return (
            f"close() did not leave the group {stays}, and its partitions go to other members when its session "
            f"({session_ms} ms) is over"
        )
