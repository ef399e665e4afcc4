"""Names what any client may fail with: its settings, its credentials, and calls at the wrong time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from eos_client import errors
from eos_client.config.client_settings import names_of
from eos_client.config.secret_settings import is_secret
from eos_client.config.setting_names import setting_like
from eos_client.confluent.failures.kafka_errors import kafka_error, make_kafka_error, with_cause
from eos_client.core.error_codes import NOT_AUTHENTICATED

HOW_TO_REACH_BROKERS = "Check the address, the network and the security settings, and that the brokers are up"
HOW_TO_AUTHENTICATE = (
    "Correct the user name, the password or token, or the certificates: a restart without that fails again"
)

_TLS_REFUSAL = re.compile(r"certificate verify failed|SSL alert number \d")
"""librdkafka often reports a certificate that either side refuses like any other lost connection (_TRANSPORT)."""


def lacks_credentials(error: KafkaError | None) -> bool:
    """Whether a connection was closed because of credentials, so that waiting for the cluster does not help."""
    if error is None:
        return False
    return error.name() in NOT_AUTHENTICATED or _TLS_REFUSAL.search(error.str()) is not None


def refusal_among(reported: Mapping[str, KafkaError]) -> KafkaError | None:
    """Return the error that was about credentials, if there is one."""
    return next((error for error in reported.values() if lacks_credentials(error)), None)


_UNKNOWN = re.compile(r'No such configuration property: "([^"]+)"')
_PROPERTY = re.compile(r'property "([^"]+)"')


def configuration_refused(
    exception: KafkaException, client: str, settings: Mapping[str, Any]
) -> errors.ConfigurationError:
    """Name what the constructor of ``client`` raised for ``settings``; it is the cause."""
    error = kafka_error(exception)
    text = error.str()
    found = _PROPERTY.search(text)
    key = found[1] if found else ""
    name = next((name for name in names_of(key) if name in settings), key)
    alias = "" if name == key else f', here "{name}"'
    # librdkafka reports a number that is out of its range as another one.
    given = f", given as {settings[name]!r}" if name in settings and not is_secret(name) else ""
    unknown = _UNKNOWN.search(text)
    alike = setting_like(unknown[1]) if unknown else None
    meant = "." if alike is None else f'; did you mean "{alike}"?'
    message = (
        f"the {client} refuses its configuration: {text}{meant} Correct or remove the named property{alias}{given}."
    )
    return with_cause(make_kafka_error(errors.ConfigurationError, error, message), exception)


def misplaced_call(message: str) -> errors.TransactionStateError:
    """Return the error for a call at the wrong time."""
    return make_kafka_error(errors.TransactionStateError, KafkaError._STATE, message)


def not_to_be_copied(client: object) -> TypeError:
    """Return the error for a copy of ``client``, which would end the original's connections when it is freed."""
    kind = type(client).__name__
    return TypeError(f"cannot copy or pickle {kind!r}: it has connections of its own. Build another one.")
