"""A real broker that asks who its clients are, by every mechanism, and asks Kafka's own authorizer what they may do.

It creates no topics by itself.
Clients of its plain listener, the tests' own, may do anything. The others are called alike whichever way they come in:
`User:billing` by its password (PLAIN), its SCRAM credentials, its token, or the common name of its certificate.
`User:operator` has a password, too.
"""

from __future__ import annotations

import base64
import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public by its documentation, not by __all__
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import serialization

from eos_client.testing import embedded_kafka
from eos_client.testing.broker_settings import HOST, broker_settings
from eos_client.testing.embedded_kafka import EmbeddedKafka
from eos_client.testing.free_ports import free_ports
from tests.support.waiting import wait_for

Op = AclOperation
WITH_ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
# Who may not read the group any more cannot leave it either: its partitions are free when its session is over.
_SHORT_SESSIONS = {"group.consumer.session.timeout.ms": "10000", "group.consumer.heartbeat.interval.ms": "500"}
SHORT_CLASSIC_SESSION = {"session.timeout.ms": "10000"}
USER, OPERATOR, PASSWORD = "billing", "operator", "right-passw0rd"
SCOPE = "kafka"
RENEWED_AFTER_S = 3
_ANSWER_S = 60.0
_MODULES = "org.apache.kafka.common.security"
_PRINCIPAL_IS_COMMON_NAME = r"RULE:^.*CN=([^,]+).*$/$1/"


@dataclass(frozen=True)
class Permission:
    """One allowed operation on one resource, or on all whose name begins so."""

    kind: ResourceType
    operation: AclOperation
    name: str
    is_prefix: bool = False

    def __str__(self) -> str:
        return f"{self.operation.name.title()} on {self.kind.name.lower()} {self.name}{'*' if self.is_prefix else ''}"

    def binding(self, user: str) -> AclBinding:
        return AclBinding(*self._resource(), f"User:{user}", "*", self.operation, AclPermissionType.ALLOW)

    def binding_filter(self, user: str) -> AclBindingFilter:
        return AclBindingFilter(*self._resource(), f"User:{user}", "*", self.operation, AclPermissionType.ALLOW)

    def _resource(self) -> tuple[ResourceType, str, ResourcePatternType]:
        return self.kind, self.name, ResourcePatternType.PREFIXED if self.is_prefix else ResourcePatternType.LITERAL


def on_topic(name: str, *operations: AclOperation) -> list[Permission]:
    return [Permission(ResourceType.TOPIC, operation, name) for operation in operations]


def on_group(name: str, *operations: AclOperation) -> list[Permission]:
    return [Permission(ResourceType.GROUP, operation, name) for operation in operations]


def on_id(name: str, *operations: AclOperation, is_prefix: bool = False) -> list[Permission]:
    return [Permission(ResourceType.TRANSACTIONAL_ID, operation, name, is_prefix) for operation in operations]


def on_cluster(*operations: AclOperation) -> list[Permission]:
    return [Permission(ResourceType.BROKER, operation, "kafka-cluster") for operation in operations]


class SecuredBroker:
    """`plain`, `sasl`, `mtls` and `unencrypted` (SASL without TLS) are its addresses.

    `authority` is the file of the certificate that it is known by. At `renewed` a client has to show its credentials
    anew every RENEWED_AFTER_S seconds.
    """

    def __init__(self, folder: Path, plain: str, sasl: str, mtls: str, renewed: str, unencrypted: str) -> None:
        self.bootstrap_servers = self.plain = plain
        self.sasl, self.mtls, self.renewed, self.unencrypted = sasl, mtls, renewed, unencrypted
        self.authority = folder / "ca.pem"
        self.certificate, self.key = folder / "client.pem", folder / "client.key"
        self.foreign_certificate, self.foreign_key = folder / "foreign.pem", folder / "foreign.key"
        self.foreign_authority = folder / "foreign-ca.pem"
        self._admin = AdminClient({"bootstrap.servers": plain})

    def login(self, mechanism: str, user: str = USER) -> dict[str, str]:
        """The settings of a client that comes in as `user` by that mechanism."""
        if mechanism == "mTLS":
            keys = {"ssl.certificate.location": str(self.certificate), "ssl.key.location": str(self.key)}
            keys["ssl.key.password"] = PASSWORD
            reached = {"bootstrap.servers": self.mtls, "security.protocol": "SSL"}
        else:
            keys = {}
            reached = {"bootstrap.servers": self.sasl, "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism}
            reached |= _token(user) if mechanism == "OAUTHBEARER" else _password(user)
        return {**reached, **keys, "ssl.ca.location": str(self.authority)}

    def add_user(self, user: str, password: str = PASSWORD) -> None:
        """Give `user` SCRAM credentials."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(user, info, password.encode())
        self._admin.alter_user_scram_credentials([change])[user].result(_ANSWER_S)

    def remove_user(self, user: str) -> None:
        """Take the SCRAM credentials of `user` away."""
        change = UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512)
        self._admin.alter_user_scram_credentials([change])[user].result(_ANSWER_S)

    def grant(self, user: str, *permissions: Permission) -> None:
        """Let `user` do that, from now on."""
        for made in self._admin.create_acls([each.binding(user) for each in permissions]).values():
            made.result(_ANSWER_S)
        self._await(user, lambda found: found.issuperset(each.binding(user) for each in permissions))

    def take_away(self, user: str, *permissions: Permission) -> None:
        """Forbid it again."""
        for gone in self._admin.delete_acls([each.binding_filter(user) for each in permissions]).values():
            assert len(gone.result(_ANSWER_S)) == 1
        self._await(user, lambda found: found.isdisjoint(each.binding(user) for each in permissions))

    def _await(self, user: str, condition: Callable[[set[AclBinding]], bool]) -> None:
        """Wait until the broker has heard it from its controller, which answers sooner."""
        nothing_named: Any = None
        resource = (ResourceType.ANY, nothing_named, ResourcePatternType.ANY)
        of_user = AclBindingFilter(*resource, f"User:{user}", nothing_named, AclOperation.ANY, AclPermissionType.ANY)
        wait_for(
            lambda: condition(set(self._admin.describe_acls(of_user).result(_ANSWER_S))),
            f"what {user} may do is known to the broker",
        )


def _password(user: str) -> dict[str, str]:
    return {"sasl.username": user, "sasl.password": PASSWORD}


def token_for(name: str) -> tuple[str, float]:
    """An unsecured JSON Web Token, which a broker takes unless it was told better, and when it ends."""
    ends_at = time.time() + 600
    claims = {"sub": name, "scope": SCOPE, "iat": time.time(), "exp": ends_at}
    parts = ({"alg": "none"}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return f"{'.'.join(encoded)}.", ends_at


@contextlib.contextmanager
def identity_provider() -> Iterator[str]:
    """Gives tokens to the client `billing` for its secret, PASSWORD; yields the address."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            secret = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
            is_known = self.headers["Authorization"] == f"Basic {secret}"
            body = {"access_token": token_for(USER)[0]} if is_known else {"error": "invalid_client"}
            self.send_response(200 if is_known else 401)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((HOST, 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{HOST}:{server.server_port}/token"
        server.shutdown()


def _token(user: str) -> dict[str, str]:
    return {
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": f"principal={user} scope={SCOPE}",
    }


@contextlib.contextmanager
def more_listeners(protocols: Mapping[str, str], properties: Mapping[str, str]) -> Iterator[list[str]]:
    """A broker with a listener for each name of `protocols` beside its plain one; yields the address of each."""
    ports: list[int] = []

    def settings_with_listeners(*arguments: object) -> dict[str, str]:
        settings = broker_settings(*arguments)  # type: ignore[arg-type]
        taken = settings["listeners"]  # the broker has chosen three of its own, and may have chosen any
        ports[:] = [port for port in free_ports(len(protocols) + 3) if f":{port}" not in taken][: len(protocols)]
        for (name, protocol), port in zip(protocols.items(), ports, strict=True):
            for key in ("listeners", "advertised.listeners"):
                settings[key] += f",{name}://{HOST}:{port}"
            settings["listener.security.protocol.map"] += f",{name}:{protocol}"
        return settings

    with contextlib.ExitStack() as running:
        with pytest.MonkeyPatch.context() as patched:  # for this broker alone: others start while it runs
            patched.setattr(embedded_kafka, "broker_settings", settings_with_listeners)
            kafka = running.enter_context(EmbeddedKafka(properties=properties))
        yield [kafka.bootstrap_servers, *(f"{HOST}:{port}" for port in ports)]


@contextlib.contextmanager
def secured_broker() -> Iterator[SecuredBroker]:
    """One such broker; the user `billing` exists by every mechanism, and may do nothing yet."""
    with tempfile.TemporaryDirectory(prefix="secured-broker-") as name:
        folder = Path(name)
        _write_certificates(folder)
        listeners = {"GUARDED": "SASL_SSL", "MUTUAL": "SSL", "RENEWED": "SASL_SSL", "OPEN": "SASL_PLAINTEXT"}
        properties = {**WITH_ACLS, **_SHORT_SESSIONS, "auto.create.topics.enable": "false"}
        properties |= {**_sasl_properties(), **_tls_properties(folder)}
        with more_listeners(listeners, properties) as addresses:
            broker = SecuredBroker(folder, *addresses)
            broker.add_user(USER)
            yield broker


def _sasl_properties() -> dict[str, str]:
    guarded, renewed, unencrypted = (f"listener.name.{name}" for name in ("guarded", "renewed", "open"))
    scram = f"{_MODULES}.scram.ScramLoginModule required;"
    passwords = " ".join(f'user_{user}="{PASSWORD}"' for user in (USER, OPERATOR))
    return {
        f"{renewed}.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        f"{renewed}.scram-sha-512.sasl.jaas.config": scram,
        f"{renewed}.connections.max.reauth.ms": str(RENEWED_AFTER_S * 1000),
        f"{guarded}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        f"{unencrypted}.sasl.enabled.mechanisms": "PLAIN",
        f"{unencrypted}.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {passwords};",
        f"{guarded}.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {passwords};",
        f"{guarded}.scram-sha-512.sasl.jaas.config": scram,
        f"{guarded}.oauthbearer.sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required "
        f'unsecuredLoginStringClaim_sub="broker" unsecuredValidatorRequiredScope="{SCOPE}";',
    }


def _tls_properties(folder: Path) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": _PRINCIPAL_IS_COMMON_NAME,
    }


def _write_certificates(folder: Path) -> None:
    authority, foreign = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    foreign.cert_pem.write_to_path(folder / "foreign-ca.pem")
    broker = authority.issue_cert(HOST)
    chain = b"".join(pem.bytes() for pem in broker.cert_chain_pems)
    (folder / "broker.pem").write_bytes(_pkcs8(broker.private_key_pem.bytes()) + chain)
    for name, issuer in (("client", authority), ("foreign", foreign)):
        client = issuer.issue_cert(f"{name}@clients.test", common_name=USER)
        (folder / f"{name}.key").write_bytes(_pkcs8(client.private_key_pem.bytes(), PASSWORD))
        client.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")


def _pkcs8(key_pem: bytes, password: str = "") -> bytes:
    """The only form in which brokers take a key."""
    key = serialization.load_pem_private_key(key_pem, password=None)
    encryption = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
