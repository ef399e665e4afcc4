"""A real broker with an authorizer and a second listener, SASL over TLS, beside the plain one of every embedded broker.

Clients of the plain listener are all one user, ``User:ANONYMOUS``. Whoever has no ACL on a resource may do everything
with it, as long as nobody has one.
"""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from eos_client.testing.java_runtime import find_java
from tests.support.secured_broker import more_listeners

USER, READER, PASSWORD = "operator", "reader", "planted-secret-9f3"
_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_{USER}="{PASSWORD}" user_{READER}="{PASSWORD}";'
)
_PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": f"User:{USER}",
    "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.secure.plain.sasl.jaas.config": _JAAS,
    "listener.name.secure.ssl.keystore.password": PASSWORD,
}


@dataclass(frozen=True)
class GuardedBroker:
    """Where its two listeners are; ``secure_settings`` are librdkafka's for the second one, as the super user."""

    bootstrap_servers: str
    secure_servers: str
    secure_settings: Mapping[str, str]


@contextmanager
def guarded_broker(directory: Path, properties: Mapping[str, str]) -> Iterator[GuardedBroker]:
    """Start one that keeps its certificate in ``directory``."""
    keystore, certificate = _certificate(directory)
    its_own = {**_PROPERTIES, "listener.name.secure.ssl.keystore.location": str(keystore), **properties}
    secure_settings = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(certificate),
    }
    with more_listeners({"SECURE": "SASL_SSL"}, its_own) as (plain, secure):
        yield GuardedBroker(plain, secure, secure_settings)


def _certificate(directory: Path) -> tuple[Path, Path]:
    """Make a key with a certificate that it has signed itself: the broker's keystore, and the certificate as PEM."""
    keytool = find_java().executable.resolve().parent / "keytool"
    keystore, certificate = directory / "broker.p12", directory / "broker.pem"
    common = [str(keytool), "-keystore", str(keystore), "-storepass", PASSWORD, "-alias", "broker"]
    name = ["-dname", "CN=127.0.0.1", "-ext", "SAN=ip:127.0.0.1", "-validity", "2", "-keyalg", "EC"]
    subprocess.run([*common, "-genkeypair", "-storetype", "PKCS12", *name], check=True, capture_output=True)
    exported = subprocess.run([*common, "-exportcert"], check=True, capture_output=True).stdout
    certificate.write_text(ssl.DER_cert_to_PEM_cert(exported))
    return keystore, certificate
