"""A cluster that asks for tokens (SASL OAUTHBEARER): the function that gets them travels to the executors."""

from __future__ import annotations

import base64
import json
import os
import pickle
import threading
import time
import uuid
from types import SimpleNamespace

import pytest

from eos_client import errors
from eos_client.integration.spark.settings import SinkSettings
from eos_client.integration.spark.worker_clients import cluster_key
from eos_client.testing import embedded_kafka
from eos_client.testing.broker_settings import HOST, broker_settings
from eos_client.testing.embedded_kafka import EmbeddedKafka
from eos_client.testing.free_ports import free_ports
from tests.spark.local_query import LocalQuery, each_once

LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OAUTH = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "OAUTHBEARER"}


def token_for(name):
    """An unsecured JSON Web Token, which a broker takes unless it was told better, and when it ends."""
    ends_at = time.time() + 600
    claims = {"sub": name, "iat": time.time(), "exp": ends_at}
    parts = ({"alg": "none"}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return f"{'.'.join(encoded)}.", ends_at


@pytest.fixture(scope="module")
def guarded():
    """A broker with one more listener, for those who have a token; its address is ``guarded``."""
    ports: list[int] = []

    def with_a_guarded_listener(*arguments):
        settings = broker_settings(*arguments)
        if not ports:  # the broker has chosen three of its own, and may have chosen any
            ports.extend(port for port in free_ports(4) if f":{port}" not in settings["listeners"])
        for key in ("listeners", "advertised.listeners"):
            settings[key] += f",GUARDED://{HOST}:{ports[0]}"
        settings["listener.security.protocol.map"] += ",GUARDED:SASL_PLAINTEXT"
        settings["listener.name.guarded.sasl.enabled.mechanisms"] = "OAUTHBEARER"
        settings["listener.name.guarded.oauthbearer.sasl.jaas.config"] = (
            f'{LOGIN} required unsecuredLoginStringClaim_sub="broker";'
        )
        return settings

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(embedded_kafka, "broker_settings", with_a_guarded_listener)
        with EmbeddedKafka() as kafka:
            yield SimpleNamespace(plain=kafka.bootstrap_servers, guarded=f"{HOST}:{ports[0]}")


@pytest.fixture
def stage(spark, guarded, tmp_path):
    made = LocalQuery(spark, guarded.plain, tmp_path, uuid.uuid4().hex[:8])
    yield made
    made.close()


def asked_by(folder):
    return [int(entry.name.split("-")[0]) for entry in folder.iterdir()]


@pytest.mark.kafka
def test_driver_and_executors_get_their_tokens_from_the_function_of_the_application(stage, guarded, tmp_path):
    asked = tmp_path / "asked"
    asked.mkdir()

    def oauth_cb(config):
        (asked / f"{os.getpid()}-{uuid.uuid4().hex}").write_text(config)
        return token_for("sink")

    sink = stage.direct(servers=guarded.guarded, config={**OAUTH, "oauth_cb": oauth_cb, "sasl.oauthbearer.config": "x"})
    for batch in range(3):
        sink(stage.numbers(20 * batch, 20 * batch + 20), batch)
    assert stage.values() == each_once(0, 60)
    asking = asked_by(asked)
    assert os.getpid() in asking
    on_executors = len(asking) - asking.count(os.getpid())
    assert 0 < on_executors <= 8, "an executor's clients serve later batches, too"


@pytest.mark.kafka
def test_a_function_that_gives_no_token_is_named(stage, guarded):
    def oauth_cb(_):
        raise OSError("no token server")

    sink = stage.direct(servers=guarded.guarded, config={**OAUTH, "oauth_cb": oauth_cb}, start_timeout_s=5.0)
    with pytest.raises(errors.EosError, match=r"oauth_cb gave no token in time.*no token server"):
        sink(stage.numbers(0, 20), 0)


def settings(**config):
    return SinkSettings("nowhere:1", "out", "s", 1, "s-ledger", config)


def test_sinks_with_one_function_share_their_clients_wherever_they_were_unpickled():
    def oauth_cb(_):
        return "one", 1.0

    def other(_):
        return "other", 1.0

    given = settings(oauth_cb=oauth_cb)
    travelled = pickle.loads(pickle.dumps(given))
    assert cluster_key(travelled) == cluster_key(given) == cluster_key(settings(oauth_cb=oauth_cb))
    assert cluster_key(given) != cluster_key(settings(oauth_cb=other))
    assert travelled.kafka["oauth_cb"]("") == travelled.config_for_admin["oauth_cb"]("") == ("one", 1.0)
    assert travelled.kafka["oauth_cb"] is pickle.loads(pickle.dumps(travelled)).kafka["oauth_cb"]


def test_a_function_that_cannot_travel_is_refused():
    lock = threading.Lock()

    def oauth_cb(_):
        with lock:
            return token_for("sink")

    with pytest.raises(errors.ConfigurationError, match=r"oauth_cb cannot go to executors.*lock"):
        settings(oauth_cb=oauth_cb)


def test_other_callbacks_are_refused():
    with pytest.raises(errors.ConfigurationError, match=r"callbacks \(error_cb, stats_cb\).*oauth_cb"):
        settings(error_cb=print, stats_cb=print, oauth_cb=print)
