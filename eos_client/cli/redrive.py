"""``eos-client redrive``: sends dead letters back to the topic they came from, each exactly once.

A letter that is not sent, because it does not match or cannot be sent, is written to the end of its topic in the same
transaction: the group's offset passes it, and the next run finds it again. A record that is no letter is never written.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from eos_client.cli.failures import CommandLineError, LettersRefusedError, LettersWaitError
from eos_client.cli.logs import ClientErrors, log_throttling
from eos_client.cli.printable import did_you_mean, shell_word
from eos_client.cli.redriven_letters import can_be_sent_to, error_of, origin_of, redriven
from eos_client.cli.settings import ClusterAccess
from eos_client.clients import EosConsumer, EosProducer, Transaction
from eos_client.clients.dead_letters import LetterHeader
from eos_client.clock import MONOTONIC_CLOCK
from eos_client.config import EosConfig
from eos_client.config.client_settings import LOG_LEVEL_CRITICAL, all_settings
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.admin.topic_records import GroupOffsets, read_topic
from eos_client.confluent.consumer.library_consumer import TopicPartition
from eos_client.confluent.record_headers import readable_headers
from eos_client.core.model import InputPartition, Outcome
from eos_client.errors import ClusterUnavailableError, ClusterUnfitError, InputPositionError, OutputRefusedError
from eos_client.loop.stop_signals import StopSignals
from eos_client.loop.transaction_size import TransactionSize
from eos_client.observe import Event, TransactionAborted, log_event
from eos_client.ports import Clock

_BATCH = 500
_POLL_S = 0.5
_ABORTS_MAX = 10
_REPORT_AFTER_S = 5.0
_COORDINATOR_S = 30.0  # it looks for transactions whose time is over every 10 s
_MESSAGE_BYTES_LARGEST = 1_000_000_000  # librdkafka takes no more


@dataclass(frozen=True, kw_only=True)
class RedriveOptions(ClusterAccess):
    """The options of ``eos-client redrive``. ``count_max``: how many letters are sent at most; None: all."""

    topic: str
    group_id: str
    target: str | None = None
    count_max: int | None = None
    match: str | None = None


@dataclass(slots=True)
class Tally:
    """Outcomes of letters: sent by topic, kept because they do not match, not sent with the reason."""

    sent: Counter[str] = field(default_factory=Counter)
    kept: int = 0
    not_sent: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add the outcomes of other letters."""
        self.sent += other.sent
        self.kept += other.kept
        self.not_sent += other.not_sent


def redrive(options: RedriveOptions) -> None:
    """Send the letters that are in the topic now, print their outcomes, and return.

    :raises LettersRefusedError: some cannot be sent, or are no letters.
    :raises LettersWaitError: some could not be read yet.
    :raises ClusterUnavailableError: a broker did not answer, so that not every letter that waits is known.
    :raises ClusterUnfitError: a topic is not there, or may not be used.
    :raises InputPositionError: the group's offset lies beyond the end of the letters.
    :raises CommandLineError: a topic name is invalid, or that of an internal topic.
    """
    for option, name in (("TOPIC", options.topic), ("--to", options.target)):
        if name is not None and not can_be_sent_to(name):
            raise CommandLineError(f"{option} {name!r} is no name of a topic for records. Name the topic itself")
    tally, reasons = Tally(), list[str]()
    try:
        with ClusterAdmin(options.bootstrap_servers, options.settings) as admin:
            last, blocked_count = _last_letters(admin, options)
    except KeyboardInterrupt:
        print("stopped before a letter was sent")
        return
    if last:
        config = client_config(options)
        with (
            StopSignals(reasons.append),
            EosConsumer(config.consumer_config(), gate=config.gate_settings(), hook=_log_all_but_aborts) as consumer,
            EosProducer(
                config.producer_config(), limits=config.producer_limits(), generate_id=True, hook=_log_all_but_aborts
            ) as producer,
        ):
            producer.init_transactions(config.start_timeout_s)
            run = Redrive(consumer, producer, options, last)
            tally = run.done
            try:
                run.run(lambda: bool(reasons))
            finally:
                for topic, count in sorted(tally.sent.items()):
                    print(f"{count} sent to {topic}")
    _print_summary(options, tally, blocked_count, "".join(reasons), had_letters=bool(last))


def _log_all_but_aborts(event: Event) -> None:
    """Log ``event`` unless it is an abort: the run logs that, or the error that ends the run says the same."""
    if not isinstance(event, TransactionAborted):
        log_event(event)


def client_config(options: RedriveOptions) -> EosConfig:
    """Return the settings of both clients: a group begins with the oldest letter, and no size is refused locally."""
    reported = {"log_level": LOG_LEVEL_CRITICAL, "error_cb": ClientErrors(), "throttle_cb": log_throttling}
    given = {"bootstrap.servers": options.bootstrap_servers, "auto.offset.reset": "earliest"}
    return EosConfig(
        {**reported, **all_settings(options.settings), **given},
        group_id=options.group_id,
        producer={"message.max.bytes": _MESSAGE_BYTES_LARGEST},
    )


def _print_summary(
    options: RedriveOptions, tally: Tally, blocked_count: int, stopped_by: str, *, had_letters: bool
) -> None:
    topic, group = options.topic, options.group_id
    if tally.kept:
        print(f"{tally.kept} kept in {topic}: the error does not hold {options.match!r}")
    if stopped_by:
        print(f"stopped by {stopped_by}: {tally.sent.total()} sent, and what is left waits for the next run")
    elif tally == Tally() and had_letters:
        print(f"another run of the group {group} has passed the letters; those in {topic} that it kept wait: run again")
    elif tally == Tally() and not blocked_count:
        print(f"no letter in {topic} waits for the group {group}")
    waiting = (
        f"up to {blocked_count} letters of {topic} are in an open transaction or after it and were not read. "
        f"Run it again when that has ended; eos-client txn list --topic {shell_word(topic)} shows it"
    )
    if tally.not_sent:
        for why in tally.not_sent + [waiting] * bool(blocked_count):
            print(f"eos-client: {why}", file=sys.stderr)
        raise LettersRefusedError(f"records that cannot be sent back and stay in {topic}: {len(tally.not_sent)}")
    if blocked_count:
        raise LettersWaitError(waiting)


def _last_letters(admin: ClusterAdmin, options: RedriveOptions) -> tuple[dict[int, int], int]:
    """Return the last offset of each partition that the group has not passed, and how many an open transaction blocks.

    They are those of records: the end of a partition may be the marker of a transaction, which no reader is given.
    """
    described = admin.topics([options.topic])[options.topic]
    if described is None:
        meant = did_you_mean(options.topic, admin.partition_counts()) or "."
        raise ClusterUnfitError(f"there is no topic {options.topic!r} with dead letters{meant}")
    count = described.partition_count
    # What an open transaction may add to these offsets is waited for by the run.
    with GroupOffsets(options.bootstrap_servers, options.group_id, options.settings, stable=False) as group:
        passed = group.read(options.topic, count)
    written = admin.end_offsets(options.topic, count)
    ends = admin.end_offsets(options.topic, count, committed_only=True)
    _require_positions(options, passed, written)
    blocked_count = sum(max(0, written[partition] - end) for partition, end in ends.items())
    last: dict[int, int] = {}
    has_letters, origins = False, set()
    settings = {**options.settings, "throttle_cb": log_throttling}
    for record in read_topic(options.bootstrap_servers, options.topic, ends, settings):
        origin = origin_of(record.headers)
        has_letters |= origin != ""
        if record.offset >= passed[record.partition]:
            last[record.partition] = record.offset
            origins.add(origin)
    if last and not has_letters:
        raise LettersRefusedError(
            f"{options.topic} holds no dead letters: no record in it has the header {LetterHeader.TOPIC}. Nothing was "
            f"sent or written. To send back the dead letters of {options.topic}, name their topic, such as "
            f"{options.topic}.dead"
        )
    targets = sorted(filter(can_be_sent_to, origins)) if options.target is None else [options.target]
    missing = ", ".join(name for name, found in admin.topics(targets).items() if found is None)
    if missing and last:
        raise ClusterUnfitError(
            f"letters cannot be sent to {missing}: there is no such topic. Create it, or name another one by --to."
        )
    return last, blocked_count


def _require_positions(options: RedriveOptions, passed: Mapping[int, int], written: Mapping[int, int]) -> None:
    for partition, end in written.items():
        if passed[partition] > end:
            raise InputPositionError(
                f"the group {options.group_id} goes on at offset {passed[partition]} of {options.topic}[{partition}], "
                f"beyond its end at {end}: which letters it has sent back cannot be known. Reset the group's offset of "
                "this partition, or name a new group by --group, which begins with the oldest letter."
            )


class Redrive:
    """One run: blocks of ``consumer`` and ``producer`` until every letter up to ``last`` has been passed.

    ``last``: the offset of the last letter of each partition. Letters after it were written since: among them are
    those that were sent back and have failed again. ``done``: the committed outcomes.
    """

    def __init__(
        self,
        consumer: EosConsumer,
        producer: EosProducer,
        options: RedriveOptions,
        last: Mapping[int, int],
        clock: Clock = MONOTONIC_CLOCK,
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._options = options
        self._last = last
        self.done = Tally()
        self._pending = Tally()
        self._places: list[str] = []
        self._size = TransactionSize(_BATCH)
        self._clock = clock
        self._silence_limit_s = float(producer.settings["transaction.timeout.ms"]) / 1000 + _COORDINATOR_S
        self._awaited, self._since, self._is_reported = "", clock(), False
        self._refused: dict[str, str] = {}

    def run(self, is_stopping: Callable[[], bool]) -> Tally:
        """Return the outcomes of the letters; nothing counts before it is committed.

        :raises ClusterUnavailableError: transactions are aborted again and again, or one with offsets of the group
            does not end.
        :raises ClusterUnfitError: the broker does not take a letter that is kept.
        """
        self._consumer.subscribe([self._options.topic])
        aborts = 0
        while True:
            has_read = False
            with self._producer.transaction(self._consumer) as txn:
                has_read = self._pass_on(txn)
            if txn.outcome is Outcome.COMMITTED:
                self.done.add(self._pending)
                if self._places:  # an empty transaction shows neither that larger ones fit nor any progress
                    self._size.committed(self._producer.adapter.flush_share)
                    aborts = 0
            elif txn.outcome is Outcome.ABORTED:
                structlog.get_logger("eos_client").warning("transaction_aborted", reason=txn.reason)
                self._consumer.resume(self._consumer.assignment())  # redelivered letters have not been sought back yet
                self._size.shrink_to_one()
                aborts = 0 if self._brings_progress() else aborts + 1
            if txn.outcome is not Outcome.SKIPPED:
                self._pending, self._places = Tally(), []
                if is_stopping() or self._is_full or not (has_read or self._remaining()):
                    return self.done
            if aborts >= _ABORTS_MAX:
                raise ClusterUnavailableError(
                    f"{aborts} transactions in a row were aborted; what was sent before is committed. Reason of the "
                    f"last abort: {txn.reason}"
                )

    def _brings_progress(self) -> bool:
        """Whether the abort was a broker's refusal, which the next transaction isolates or leaves out.

        A broker refuses a whole batch (``docs/decisions/outputs.md``): only that of a single letter names the letter.
        """
        reason = self._producer.adapter.take_refusal_reason()
        if reason and len(self._places) == 1:
            if not self._pending.sent:
                raise ClusterUnfitError(
                    f"the letter at {self._places[0]} cannot be kept, so nothing after it is sent. What was sent "
                    f"before is committed. Let its topic take it again: the output to {reason}"
                )
            self._refused[self._places[0]] = f"the output to {reason}"
        return bool(reason)

    @property
    def _is_full(self) -> bool:
        count_max = self._options.count_max
        return count_max is not None and self.done.sent.total() + self._pending.sent.total() >= count_max

    def _remaining(self) -> bool:
        """Whether the group, which may have other members, has not passed every letter yet, or does not say."""
        places = {partition: InputPartition(self._options.topic, partition) for partition in self._last}
        passed = self._consumer.adapter.library.committed_offsets(places.values())
        self._report_waiting(has_answered=passed is not None)
        return passed is None or any(
            place not in passed or passed[place].offset <= self._last[at] for at, place in places.items()
        )

    def _report_waiting(self, *, has_answered: bool) -> None:
        """Say once what is waited for, after some seconds.

        :raises ClusterUnavailableError: all partitions are ours, and the group has not answered with its offsets for
            longer than a transaction may stay open.
        """
        group, now = f"the group {self._options.group_id}", self._clock()
        elsewhere = sorted(self._last.keys() - {at.partition for at in self._consumer.assignment()})
        awaited = ""
        if elsewhere:
            awaited = (
                f"partitions {elsewhere} of {self._options.topic}, which another member of {group} holds: end that "
                "one, or let it finish. One that was killed holds them until its session.timeout.ms is over"
            )
        elif not has_answered:
            awaited = (
                f"a transaction with offsets of {group} that is still open, as one of a run that was killed is until "
                "its transaction.timeout.ms is over; eos-client txn list shows it"
            )
        if awaited != self._awaited:
            self._awaited, self._since, self._is_reported = awaited, now, False
        if awaited and not self._is_reported and now - self._since > _REPORT_AFTER_S:
            self._is_reported = True
            print(f"eos-client: waits for {awaited}", file=sys.stderr, flush=True)
        if not (elsewhere or has_answered) and now - self._since > self._silence_limit_s:
            raise ClusterUnavailableError(
                f"{group} has not answered with its offsets for {now - self._since:.0f} s. Either no broker answers, "
                f"or there is {awaited}"
            )

    def _pass_on(self, txn: Transaction) -> bool:
        handed_back: set[int] = set()
        letters = self._consumer.consume(self._size.records_max, _POLL_S)
        self._awaited = "" if letters else self._awaited
        for letter in letters:
            partition = letter.partition()
            if partition in handed_back:
                continue
            if self._is_full or letter.offset() > self._last.get(partition, -1):
                place = TopicPartition(self._options.topic, partition, letter.offset())
                self._consumer.seek(place)
                self._consumer.pause([place])
                handed_back.add(partition)
            else:
                self._send_or_keep(txn, letter)
        return bool(letters)

    def _send_or_keep(self, txn: Transaction, letter: Any) -> None:
        where = f"{letter.topic()}[{letter.partition()}]@{letter.offset()}"
        self._places.append(where)
        if not origin_of(dict(readable_headers(letter) or ())):
            why = f"it has no header {LetterHeader.TOPIC}"
            self._pending.not_sent.append(f"the record at {where} is no dead letter: {why}")
        elif self._options.match is not None and self._options.match not in error_of(letter):
            self._keep(txn, letter)
            self._pending.kept += 1
        elif refusal := self._refused.get(where) or self._refusal_to_send(txn, letter):
            self._keep(txn, letter)
            self._pending.not_sent.append(f"the letter at {where} stays: {refusal}")

    def _refusal_to_send(self, txn: Transaction, letter: Any) -> ValueError | OutputRefusedError | None:
        """Send ``letter``; return why that is refused, None where it is not."""
        try:
            record = redriven(letter, self._options.target)
            txn.produce(**msgspec.structs.asdict(record))
        except (ValueError, OutputRefusedError) as error:
            return error
        self._pending.sent[str(record.topic)] += 1
        return None

    def _keep(self, txn: Transaction, letter: Any) -> None:
        _kind, timestamp_ms = letter.timestamp()
        place = {"partition": letter.partition(), "timestamp_ms": timestamp_ms if timestamp_ms > 0 else None}
        txn.produce(letter.topic(), letter.value(), letter.key(), headers=letter.headers(), **place)
