"""Which of librdkafka's security settings the requests about transactions take, and which they refuse."""

import logging
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from eos_client.errors import ClusterUnavailableError, ConfigurationError
from eos_client.kafka_python.security import security_settings
from eos_client.kafka_python.transactions_admin import TransactionsAdmin


def test_without_security_settings_nothing_is_encrypted_and_nobody_logs_in() -> None:
    assert security_settings({"client.id": "x", "socket.timeout.ms": "5"}) == {"security_protocol": "PLAINTEXT"}


@pytest.mark.parametrize("key", ["sasl.mechanism", "sasl.mechanisms"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_names_and_passwords_are_taken_by_both_spellings(key: str, mechanism: str) -> None:
    settings = {"security.protocol": "sasl_plaintext", key: mechanism, "sasl.username": "u", "sasl.password": "p"}
    assert security_settings(settings) == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "u",
        "sasl_plain_password": "p",
    }


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "GSSAPI", None])
def test_a_mechanism_without_a_translation_is_refused_with_the_ways_out(mechanism: Any) -> None:
    settings = {"security.protocol": "SASL_SSL", **({"sasl.mechanism": mechanism} if mechanism else {})}
    with pytest.raises(ConfigurationError, match=r"sasl.mechanism='(OAUTHBEARER|GSSAPI)' is not .*kafka-transactions"):
        security_settings(settings)


@pytest.mark.parametrize("key", ["ssl.keystore.location", "ssl.crl.location", "ssl.cipher.suites", "ssl.key.pem"])
def test_a_security_setting_without_a_translation_is_refused_by_name_and_without_its_value(key: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{key} is not supported by the commands on transactions") as refused:
        security_settings({key: "planted-secret"})
    assert "planted-secret" not in str(refused.value)


def tls(**settings: str) -> ssl.SSLContext:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    context: ssl.SSLContext = security_settings({"security.protocol": "ssl", **named})["ssl_context"]
    return context


def test_a_certificate_and_the_name_in_it_are_verified_unless_the_settings_say_otherwise() -> None:
    assert (tls().verify_mode, tls().check_hostname) == (ssl.CERT_REQUIRED, True)
    unnamed = tls(ssl_endpoint_identification_algorithm="none")
    assert (unnamed.verify_mode, unnamed.check_hostname) == (ssl.CERT_REQUIRED, False)
    unverified = tls(enable_ssl_certificate_verification="false")
    assert (unverified.verify_mode, unverified.check_hostname) == (ssl.CERT_NONE, False)


def test_trusted_certificates_may_be_given_as_text() -> None:
    authority = trustme.CA(organization_name="ours")
    (trusted,) = tls(ssl_ca_pem=authority.cert_pem.bytes().decode()).get_ca_certs()
    assert "ours" in str(trusted["subject"])


@pytest.mark.parametrize("key", ["ssl.ca.location", "ssl.certificate.location"])
def test_a_file_that_cannot_be_used_is_a_configuration_error(key: str, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("nothing")
    for path in ("nowhere.pem", "empty.pem"):
        with pytest.raises(ConfigurationError, match="must be readable and in PEM format"):
            security_settings({"security.protocol": "ssl", key: str(tmp_path / path)})


def test_no_secret_is_logged_or_told_and_an_unreachable_broker_is_an_error_alone(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """kafka-python itself logs all of its settings at the debug level, and each failed attempt to connect."""
    settings = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
    with (
        caplog.at_level(logging.DEBUG, logger="kafka"),
        pytest.raises(ClusterUnavailableError, match="did not serve requests about transactions within 1 s") as told,
    ):
        TransactionsAdmin("127.0.0.1:1, 127.0.0.1:1", {**settings, "sasl.password": "planted-secret"}, timeout_s=1.0)
    assert "planted-secret" not in str(told.value)
    assert caplog.text == ""
    assert capfd.readouterr() == ("", "")
