"""Asks whether this client may run transactions under an id, starting none and fencing no producer that uses it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException, Producer

from eos_client.confluent.callback_guard import built
from eos_client.confluent.client_library import destroy_producer
from eos_client.confluent.failures.kafka_errors import kafka_error
from eos_client.core.error_codes import TRANSACTION_TIMEOUT_REFUSED, TRANSACTIONAL_ID_FORBIDDEN
from eos_client.errors import ClusterUnfitError

LONGEST_TIMEOUT_MS = 2**31 - 1_000
"""Near the largest int32: librdkafka adds 100 to it when it checks `socket.timeout.ms`."""
_ANSWER_TIMEOUT_S = 10
_SILENT = logging.getLogger(f"{__name__}.silent")
_SILENT.disabled = True


def may_use_transactional_id(bootstrap_servers: str, config: Mapping[str, Any], transactional_id: str) -> bool:
    """Tell whether a broker would let this client initialise ``transactional_id``.

    A broker looks at the permission first and at the transaction's time-out next, and only then does it do anything.
    So a time-out that no broker allows gets an informative answer, and has no effect: their
    ``transaction.max.timeout.ms`` must be below `LONGEST_TIMEOUT_MS`.

    :param config: librdkafka settings without those that only a consumer knows.
    :raises ClusterUnfitError: there is no usable answer.
    """
    settings = {
        **config,
        "bootstrap.servers": bootstrap_servers,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": LONGEST_TIMEOUT_MS,
        "socket.timeout.ms": _ANSWER_TIMEOUT_S * 1000,
        "logger": _SILENT,
    }
    producer = built("producer", Producer, settings)
    try:
        producer.init_transactions(_ANSWER_TIMEOUT_S)
    except KafkaException as error:
        code: str = kafka_error(error).name()
        if code in {TRANSACTION_TIMEOUT_REFUSED, TRANSACTIONAL_ID_FORBIDDEN}:
            return code == TRANSACTION_TIMEOUT_REFUSED
        what = f"whether transactional id {transactional_id!r} may be used is not known"
        raise ClusterUnfitError(f"{what}: {kafka_error(error).str()}") from error
    finally:
        destroy_producer(producer)
    return True
