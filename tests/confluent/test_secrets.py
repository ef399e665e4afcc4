"""Secrets that are given as settings are in nothing that is printed, logged, raised or shown."""

import json
import logging
import pickle
import subprocess
import sys

import pytest
import structlog

from eos_client import EosConfig, EosConsumer, EosProducer
from eos_client.errors import EosError

PLANTED = "pl4nted-s3cret"
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 7, "debug": "all"}
CREDENTIALS = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "billing"}
SECRETS = {
    "sasl.password": PLANTED,
    "ssl.key.password": PLANTED,
    "ssl.keystore.password": PLANTED,
    "sasl.oauthbearer.client.secret": PLANTED,
}
WRONG = [
    {"enable.auto.commit": True},
    {"no.such.setting": "x"},
    {"session.timeout.ms": "soon"},
    {"security.protocol": "SSL", "ssl.key.pem": f"-----BEGIN PRIVATE KEY-----{PLANTED}"},
    {"sasl.oauthbearer.config": f"secret={PLANTED}", "sasl.oauthbearer.method": "no such method"},
    {"sasl.mechanism": "NO-SUCH-MECHANISM"},
]


@pytest.fixture
def logged(caplog, capfd):
    """Everything that was printed or logged so far, at any level."""
    structlog.reset_defaults()
    caplog.set_level(logging.DEBUG)

    def said():
        return caplog.text + "".join(str(vars(record)) for record in caplog.records) + "".join(capfd.readouterr())

    return said


def all_of(error):
    """The texts of an error and of what has caused it."""
    texts = []
    while error is not None:
        texts += [str(error), repr(error), str(vars(error))]
        error = error.__cause__ or error.__context__
    return " ".join(texts)


def test_a_configuration_shows_no_secret():
    settings = {**NOWHERE, **CREDENTIALS, **SECRETS, "default.topic.config": SECRETS}
    config = EosConfig(settings, group_id="billing", producer=SECRETS, consumer=SECRETS)
    assert PLANTED not in f"{config} {config!r} {config.consumer_config()} {config.producer_config()}"
    assert pickle.loads(pickle.dumps(config)).kafka["sasl.password"] == PLANTED


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: next(reversed(wrong)))
def test_an_error_about_another_setting_shows_no_secret(wrong, logged):
    settings = {**NOWHERE, **CREDENTIALS, **SECRETS, **wrong}
    makers = [
        lambda: EosConsumer({**settings, "group.id": "billing"}).close(),
        lambda: EosProducer({**settings, "transactional.id": "billing-0"}).close(),
        lambda: EosConfig(settings, group_id="billing"),
    ]
    told = []
    for make in makers:
        try:
            make()
        except Exception as error:  # noqa: BLE001, PERF203  # whatever it is, it must show nothing
            told.append(all_of(error))
    assert told
    assert PLANTED not in " ".join(told) + logged()


@pytest.mark.parametrize("client", [EosConsumer, EosProducer])
@pytest.mark.parametrize("kind", [list, set, str])
def test_a_configuration_that_is_no_dict_is_not_shown(kind, client):
    given = kind({**NOWHERE, **SECRETS}.items())
    told = rf"expected configuration dict: {client.__name__}\(\) was given a {kind.__name__}"
    with pytest.raises(TypeError, match=told) as refused:
        client(given)
    assert PLANTED not in all_of(refused.value)


def test_clients_that_reach_no_broker_show_no_secret(logged):
    settings = {**NOWHERE, **CREDENTIALS, "sasl.password": PLANTED}
    consumer = EosConsumer({**settings, "group.id": "billing"})
    producer = EosProducer({**settings, "transactional.id": "billing-0"})
    shown = [repr(consumer), repr(producer), str(vars(consumer)), str(vars(producer))]
    for client in (consumer, producer):
        shown += [repr(client.settings), str(client.settings)]
        assert client.settings["sasl.password"] == PLANTED
    with pytest.raises(EosError) as failed:
        producer.init_transactions(1.0)
    consumer.poll(0.5)
    consumer.close()
    producer.close()
    assert "'sasl.password': '****'" in shown[-1]
    assert PLANTED not in " ".join(shown) + all_of(failed.value) + logged()


@pytest.mark.parametrize(("command", "log_format"), [("run", "console"), ("run", "json"), ("doctor", "")])
def test_the_commands_print_no_secret(command, log_format, tmp_path):
    (tmp_path / "price.py").write_text("def price(record):\n    return record.value()\n")
    credentials = {**CREDENTIALS, "sasl.password": PLANTED, "debug": "all", "log_level": "7"}
    file = tmp_path / "client.toml"
    file.write_text("".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in credentials.items()))
    given = ["--bootstrap", "127.0.0.1:1", "--config-file", str(file), "--verbose"]
    if command == "run":
        ends = ["--group", "g", "--from", "orders", "--to", "invoices", "--start-timeout", "1"]
        given = ["price.py:price", *ends, "--log-format", log_format, *given]
    ran = subprocess.run(
        [sys.executable, "-m", "eos_client", command, *given],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode != 0
    assert "127.0.0.1:1" in ran.stdout + ran.stderr
    assert PLANTED not in ran.stdout + ran.stderr
