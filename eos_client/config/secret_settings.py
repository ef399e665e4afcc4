"""Settings whose values must not be shown, and refusals of those that librdkafka itself would show."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from eos_client.errors import ConfigurationError

Settings = Mapping[str, Any]

_SECRETS = ("password", "passphrase", "secret", "private.key", "ssl.key.pem", "ssl_key", "oauthbearer.config", "jaas")
_MASK = "****"
_OAUTHBEARER = "sasl.oauthbearer.config"
_OAUTHBEARER_PART = re.compile(r"(principal|principalClaimName|scope|scopeClaimName|lifeSeconds|extension_[A-Za-z]+)=")


def masked(settings: Settings) -> dict[str, Any]:
    """Return ``settings`` with secret values masked."""
    shown = {key: masked(value) if isinstance(value, Mapping) else value for key, value in settings.items()}
    return {key: _MASK if is_secret(key) else value for key, value in shown.items()}


class MaskedSettings(dict[str, Any]):
    """Settings whose ``repr`` masks secrets; a look-up by key returns them."""

    def __repr__(self) -> str:
        return repr(masked(self))


def is_secret(key: str) -> bool:
    """Whether the value of the setting ``key`` must not be shown."""
    return any(part in str(key).lower() for part in _SECRETS)


def check_token_settings(settings: Settings) -> None:
    """Refuse a ``sasl.oauthbearer.config`` that librdkafka cannot read, because its own error would show it.

    Raises ConfigurationError, without the value. With ``oauth_cb`` and with OIDC its form is another.
    """
    text = settings.get(_OAUTHBEARER)
    if text is None or "oauth_cb" in settings or settings.get("sasl.oauthbearer.method") == "oidc":
        return
    for number, part in enumerate(str(text).split(), 1):
        if _OAUTHBEARER_PART.match(part) is None:
            raise ConfigurationError(
                f"part {number} of {_OAUTHBEARER!r}, whose value is not shown, is none of principal=, "
                "principalClaimName=, scope=, scopeClaimName=, lifeSeconds= and extension_NAME=. Correct it; for OIDC "
                "set sasl.oauthbearer.method=oidc and sasl.oauthbearer.client.secret."
            )


def check_addresses(settings: Settings) -> None:
    """Refuse credentials in the addresses of brokers; raises ConfigurationError, without the value.

    librdkafka takes what stands before the ``@`` for a part of the host's name, and shows it in its log.
    """
    for key in ("bootstrap.servers", "metadata.broker.list"):
        if "@" in str(settings.get(key, "")):
            raise ConfigurationError(
                f'"{key}" has an "@" in it, and is not shown, because a password may stand there. Give host:port, and '
                'user and password as "sasl.username" and "sasl.password".'
            )
