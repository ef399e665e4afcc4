"""Secrets that are given as settings are in nothing that is printed, logged, raised or shown."""

import json
import logging
import pickle
import subprocess
import sys
from contextlib import ExitStack

import pytest
import structlog

from eos_client import AsyncExactlyOnceLoop, EosConfig, EosConsumer, EosProducer, ExactlyOnceLoop
from eos_client.cli.exit_codes import ExitCode
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


RUN = ["run", "price.py:price", "--group", "g", "--from", "orders", "--to", "invoices", "--start-timeout", "1"]
COMMANDS = {
    "run": [*RUN, "--log-format", "console"],
    "run, as JSON": [*RUN, "--log-format", "json"],
    "tail": ["tail", "orders"],
    "redrive": ["redrive", "orders.dead"],
    "topic create": ["topic", "create", "orders"],
    "txn list": ["txn", "list"],
    "txn abort": ["txn", "abort", "--transactional-id", "billing-0", "--force"],
    "doctor": ["doctor", "--group", "g", "--from", "orders", "--to", "invoices"],
    "demo": ["demo", "--input", "price.py"],
}


IN_EACH_RUN = ("run", "txn list", "doctor")
"""What has clients of its own; soak tests try the others."""


@pytest.fixture(scope="module")
def commands(tmp_path_factory, request):
    """All commands at once, because each waits for a broker that does not answer; with the files that they print to."""
    folder = tmp_path_factory.mktemp("commands")
    (folder / "price.py").write_text("def price(record):\n    return record.value()\n")
    credentials = {**CREDENTIALS, "sasl.password": PLANTED, "debug": "all", "log_level": "7"}
    file = folder / "client.toml"
    file.write_text("".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in credentials.items()))
    where = ["--bootstrap", "127.0.0.1:1", "--config-file", str(file), "--verbose"]
    started = {}
    with ExitStack() as ending:
        tried = {
            item.callspec.params["command"]
            for item in request.session.items
            if item.path == request.path and "commands" in item.fixturenames
        }
        for name, given in COMMANDS.items():
            if name not in tried:
                continue
            printed = ending.enter_context((folder / f"{name}.txt").open("w+"))
            line = [sys.executable, "-m", "eos_client", *given, *where]
            process = subprocess.Popen(line, cwd=folder, stdout=printed, stderr=subprocess.STDOUT)
            ending.callback(process.kill)
            started[name] = process, printed
        yield started


@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=() if name in IN_EACH_RUN else pytest.mark.soak) for name in COMMANDS]
)
def test_a_command_that_reaches_no_broker_prints_no_secret(command, commands):
    process, printed = commands[command]
    assert process.wait(240) == ExitCode.CLUSTER_UNAVAILABLE
    printed.seek(0)
    said = printed.read()
    assert "127.0.0.1:1" in said
    assert "Traceback" in said
    assert PLANTED not in said


def test_a_sink_shows_no_secret():
    pytest.importorskip("pyspark")
    from eos_client.integration.spark import EosKafkaSink  # noqa: PLC0415  where it can be imported

    sink = EosKafkaSink("127.0.0.1:1", "out", sink_id="s", slots=1, config={**CREDENTIALS, **SECRETS})
    assert PLANTED not in f"{sink!r} {sink} {[repr(part) for part in vars(sink).values()]}"


def test_what_is_built_with_a_configuration_shows_no_secret():
    config = EosConfig({**NOWHERE, **CREDENTIALS, **SECRETS, "log_level": 0}, group_id="billing")

    async def nothing(_record):
        return []

    loops = [ExactlyOnceLoop(config, ["orders"], lambda _: []), AsyncExactlyOnceLoop(config, ["orders"], nothing)]
    for made in (config, *loops):
        parts = [] if made is config else [repr(part) for part in vars(made).values()]
        assert PLANTED not in f"{made!r} {made} {parts}"
