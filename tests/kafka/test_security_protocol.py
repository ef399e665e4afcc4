"""A client that speaks another security protocol than its port is told which one to set."""

from typing import Any

import pytest

from eos_client import EosConfig, ExactlyOnceLoop
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.listener_probe import how_to_speak
from eos_client.errors import AuthenticationError, ClusterUnavailableError
from tests.support.secured_broker import PASSWORD, USER

PORTS = {"PLAINTEXT": "plain", "SASL_PLAINTEXT": "unencrypted", "SASL_SSL": "sasl", "SSL": "mtls"}
LIMIT_S = 3.0
PLAIN_TO_SASL, SASL_TO_PLAIN = ("PLAINTEXT", "SASL_PLAINTEXT"), ("SASL_PLAINTEXT", "PLAINTEXT")
# A port that wants a client's certificate first says nothing of SASL.
NO_ADVICE = {*((protocol, protocol) for protocol in PORTS), ("SASL_SSL", "SSL")}


def settings_of(broker: Any, protocol: str, **changed: str) -> dict[str, Any]:
    sasl = {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}
    tls = {"ssl.ca.location": str(broker.authority)}
    needed = {**(sasl if "SASL" in protocol else {}), **(tls if "SSL" in protocol else {})}
    return {**needed, "security.protocol": protocol, "log_level": 0, **changed}


def start(settings: dict[str, Any]) -> None:
    config = EosConfig(settings, group_id="billing", start_timeout_s=LIMIT_S)
    with ExactlyOnceLoop(config, ["orders"], lambda _record: None, hook=lambda _event: None) as loop:
        loop.run()


@pytest.mark.parametrize("theirs", PORTS)
@pytest.mark.parametrize("ours", PORTS)
def test_a_port_is_asked_what_it_speaks(secured_broker: Any, ours: str, theirs: str) -> None:
    address = getattr(secured_broker, PORTS[theirs])
    advice = f"{address} speaks {theirs}, and this client {ours}: set security.protocol={theirs}, or correct the port"
    assert how_to_speak(address, ours.lower()) == ("" if (ours, theirs) in NO_ADVICE else advice)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [PLAIN_TO_SASL, *(pytest.param(*each, marks=pytest.mark.soak) for each in (SASL_TO_PLAIN, ("PLAINTEXT", "SSL")))],
)
def test_a_start_names_what_the_port_speaks_and_the_setting(secured_broker: Any, ours: str, theirs: str) -> None:
    address = getattr(secured_broker, PORTS[theirs])
    with pytest.raises(ClusterUnavailableError) as caught:
        start({**settings_of(secured_broker, ours), "bootstrap.servers": address})
    assert f"{address} speaks {theirs}, and this client {ours}: set security.protocol={theirs}" in str(caught.value)
    assert "orrect the user name" not in str(caught.value)


@pytest.mark.parametrize(("ours", "theirs"), [pytest.param(*PLAIN_TO_SASL, marks=pytest.mark.soak), SASL_TO_PLAIN])
def test_a_command_names_it_as_well(secured_broker: Any, ours: str, theirs: str) -> None:
    address = getattr(secured_broker, PORTS[theirs])
    with (
        ClusterAdmin(address, settings_of(secured_broker, ours), timeout_s=LIMIT_S) as admin,
        pytest.raises(ClusterUnavailableError, match=f"set security.protocol={theirs}"),
    ):
        admin.cluster()


def test_a_wrong_password_is_the_reason_and_brokers_that_did_not_answer_are_not(secured_broker: Any) -> None:
    wrong = settings_of(secured_broker, "SASL_PLAINTEXT", **{"sasl.password": "wrong"})
    with (
        ClusterAdmin(secured_broker.unencrypted, wrong, timeout_s=LIMIT_S) as admin,
        pytest.raises(AuthenticationError, match=r"refuse this client.*Correct the user name") as caught,
    ):
        admin.cluster()
    assert "no broker answered" not in str(caught.value)
