"""Translates librdkafka's security settings into those of kafka-python.

A security setting that has no translation is refused: a connection that leaves one out would be another one than all
other commands make. Settings of other kinds (time-outs, back-offs, log levels) mean nothing to these few requests.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eos_client.config.client_settings import is_on
from eos_client.errors import ConfigurationError

_PASSWORD_MECHANISMS = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})
_TRANSLATED = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
    }
)
_OF_MECHANISMS = ("sasl.kerberos", "sasl.oauthbearer", "enable.sasl.oauthbearer")
"""Settings that say nothing where another mechanism is chosen."""
_WAY_OUT = (
    "The other commands take it. Use a principal with PLAIN, SCRAM or a TLS certificate in PEM files, or Kafka's own "
    "kafka-transactions.sh"
)


def security_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return kafka-python's settings for ``settings``, which are librdkafka's by their dotted names.

    :raises ConfigurationError: a security setting has no translation, or names a file that cannot be used.
    """
    for key in settings:
        is_security = key.startswith(("security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl."))
        if is_security and key not in _TRANSLATED and not key.startswith(_OF_MECHANISMS):
            raise ConfigurationError(f"{key} is not supported by the commands on transactions. {_WAY_OUT}")
    protocol = str(settings.get("security.protocol", "plaintext")).upper()
    translated: dict[str, Any] = {"security_protocol": protocol}
    if protocol.startswith("SASL_"):
        translated.update(_credentials(settings))
    if protocol.endswith("SSL"):
        translated["ssl_context"] = _tls(settings)
    return translated


def _credentials(settings: Mapping[str, Any]) -> dict[str, Any]:
    mechanism = str(settings.get("sasl.mechanisms", settings.get("sasl.mechanism", "GSSAPI"))).upper()
    if mechanism not in _PASSWORD_MECHANISMS:
        raise ConfigurationError(
            f"sasl.mechanism={mechanism!r} is not supported by the commands on transactions. {_WAY_OUT}"
        )
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": str(settings.get("sasl.username", "")),
        "sasl_plain_password": str(settings.get("sasl.password", "")),
    }


def _tls(settings: Mapping[str, Any]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(**_authorities(settings))
        certificate = settings.get("ssl.certificate.location")
        if certificate:
            # Without a password Python would ask for one at the terminal.
            password = str(settings.get("ssl.key.password", ""))
            context.load_cert_chain(certificate, settings.get("ssl.key.location"), password)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigurationError(
            f"the files that ssl.ca.location, ssl.certificate.location and ssl.key.location name cannot be used: "
            f"{error}. They must be readable and in PEM format, and ssl.key.password that of the key"
        ) from error
    verifies = is_on(settings, "enable.ssl.certificate.verification", default=True)
    is_named = str(settings.get("ssl.endpoint.identification.algorithm", "https")).lower() != "none"
    context.check_hostname = verifies and is_named
    if not verifies:
        context.verify_mode = ssl.CERT_NONE
    return context


def _authorities(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return where the trusted certificates are; nothing means those of the system."""
    if settings.get("ssl.ca.pem"):
        return {"cadata": str(settings["ssl.ca.pem"])}
    place = str(settings.get("ssl.ca.location") or "probe")
    if place == "probe":
        return {}
    return {"capath" if Path(place).is_dir() else "cafile": place}
