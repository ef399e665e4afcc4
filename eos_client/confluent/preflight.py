"""Checks before the first poll that the cluster answers and has the topics.

A subscription to a missing topic is silent, and an unreachable broker only logs: both are reported here within seconds.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.confluent.diagnosis import asking, unreachable
from eos_client.confluent.failures.kafka_errors import kafka_error
from eos_client.confluent.first_contact import FirstContact
from eos_client.confluent.producer.confluent_producer import ConfluentProducer
from eos_client.core.error_codes import TOPIC_UNREADABLE
from eos_client.core.model import InputPartition, Partitions, is_pattern
from eos_client.core.output_topics import why_unfit_settings
from eos_client.errors import ClusterUnfitError, EosError
from eos_client.ports import Clock

# What list_topics raises where a connected broker does not answer. Without a connection it is _TRANSPORT.
_UNANSWERED = KafkaError._TIMED_OUT
_FIRST_SLICE_S = 0.5
_CREATION_WAIT_S = 5.0
_SPREAD_WAIT_S = 2.0
_RETRY_INTERVAL_S = 0.1


def require_topics(
    consumer: ConfluentConsumer,
    topics: Sequence[str],
    limit_s: float,
    clock: Clock,
    is_stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Check that the input ``topics`` exist; patterns (``^...``) are not checked.

    A topic that was created a moment ago is not known to every broker yet, so they are asked again for a while.
    Raises ClusterUnavailableError when no broker answers within ``limit_s`` seconds, or until ``is_stopped``, and
    ClusterUnfitError for a missing topic.
    """
    names = [t for t in topics if not is_pattern(t)]
    last = consumer.library.last_errors

    def ask() -> Any:
        contact = FirstContact(last, limit_s, clock, is_stopped=is_stopped)
        try:
            return _answer(lambda slice_s: consumer.list_topics(timeout=slice_s), consumer.serve_errors, contact, clock)
        except KafkaException as error:
            asked, simulated = (consumer.settings, contact.waited_s, last), not consumer.library.is_real
            raise unreachable(*asked, simulated=simulated, refused=contact.is_refused) from error

    _require(ask, names, "input", min(limit_s, _SPREAD_WAIT_S), clock)


def require_output_topics(producer: ConfluentProducer, topics: Iterable[str], limit_s: float, clock: Clock) -> None:
    """Check that the output ``topics`` exist; a broker that creates topics by itself is given time to do so.

    Raises ClusterUnavailableError when no broker answers within ``limit_s`` seconds, ClusterUnfitError for a missing
    topic, and for one whose settings let no transaction end. Without permission to read those, nothing is said of them.
    """
    topics, library = list(topics), producer.library
    for topic in topics:
        ask = partial(producer.list_topics, topic, limit_s)
        try:
            _require(ask, [topic], "output", min(limit_s, _CREATION_WAIT_S), clock)
        except KafkaException as error:
            producer.calls.drain_events()
            simulated = not library.thread.is_real
            raise unreachable(library.settings, limit_s, library.last_errors, simulated=simulated) from error
    if topics and library.thread.is_real:
        _require_fit_settings(library.settings, topics)


def _require_fit_settings(settings: Mapping[str, Any], topics: Iterable[str]) -> None:
    with asking(settings) as admin:
        for topic in topics:
            shown: Mapping[str, str] = {}
            with suppress(EosError):
                shown = admin.topic_settings(topic)
            if why := why_unfit_settings(shown):
                raise ClusterUnfitError(f"the output topic {topic!r} is unfit: {why}. Raise it on the topic.")


def known_topics(consumer: ConfluentConsumer, limit_s: float) -> frozenset[str] | None:
    """Return the topics that this client may see; None if no broker answers within ``limit_s`` seconds."""
    try:
        return frozenset(consumer.list_topics(timeout=limit_s).topics)
    except KafkaException:
        return None


def partitions_of(consumer: ConfluentConsumer, topics: Iterable[str], limit_s: float) -> Partitions | None:
    """Return the partitions that ``topics`` have; None where the cluster does not show all of them in ``limit_s``."""
    found: set[InputPartition] = set()
    for topic in topics:
        try:
            known = consumer.list_topics(topic, limit_s).topics[topic]
        except KafkaException:
            return None
        if known.error is not None:
            return None
        found.update(InputPartition(topic, number) for number in known.partitions)
    return frozenset(found)


def has_topic(consumer: ConfluentConsumer, topic: str, limit_s: float) -> bool | None:
    """Whether a broker knows ``topic`` and lets this client see it; None where none answers in time.

    Other errors of a topic pass, such as that of a leader which is not elected yet.
    """
    try:
        error = consumer.list_topics(topic, limit_s).topics[topic].error
    except KafkaException:
        return None
    return error is None or error.name() not in TOPIC_UNREADABLE


def _answer(ask: Callable[[float], Any], serve: Callable[[], None], contact: FirstContact, clock: Clock) -> Any:
    """Return what ``ask`` does, which is given a part of the time, so that it ends early where ``contact`` does.

    The parts grow while a broker is connected: one whose answer takes long is given the time for it. Errors are served
    by ``serve``.
    """
    slice_s = _FIRST_SLICE_S
    while True:
        began_at, part_s = clock(), min(slice_s, contact.left_s)
        try:
            return ask(part_s)
        except KafkaException as error:
            serve()
            if contact.is_over() or clock() - began_at < part_s / 2:  # an answer, and no silence
                raise
            if kafka_error(error).code() == _UNANSWERED:
                slice_s *= 2


def _require(ask: Callable[[], Any], topics: Sequence[str], role: str, wait_s: float, clock: Clock) -> None:
    """Check that the cluster knows ``topics``; it is asked again for a while when it does not."""
    deadline = clock() + wait_s
    while True:
        known = ask().topics
        missing = next((topic for topic in topics if topic not in known or known[topic].error is not None), None)
        if missing is None:
            return
        if clock() >= deadline:
            break
        clock.sleep(_RETRY_INTERVAL_S)
    raise missing_topic(missing, known, role)


def missing_topic(missing: str, known: Iterable[str], role: str) -> ClusterUnfitError:
    """Return the error for an input or output topic that is not among those that this client may see."""
    alike = difflib.get_close_matches(missing, list(known), n=1)
    hint = f"; did you mean {alike[0]!r}?" if alike and alike[0] != missing else "."
    return ClusterUnfitError(
        f"the {role} topic {missing!r} does not exist on this cluster, or may not be seen. Create it, correct the "
        f"name, or allow this client to describe it{hint}"
    )
