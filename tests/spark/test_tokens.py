"""A cluster that asks for tokens (SASL OAUTHBEARER): the function that gets them travels to the executors."""

from __future__ import annotations

import os
import pickle
import threading
import uuid
from types import SimpleNamespace

import pytest

from eos_client import errors
from eos_client.integration.spark.settings import SinkSettings
from eos_client.integration.spark.worker_clients import cluster_key
from tests.spark.local_query import LocalQuery, each_once
from tests.support.secured_broker import more_listeners, token_for

LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OAUTH = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "OAUTHBEARER"}


@pytest.fixture(scope="module")
def guarded():
    """A broker with one more listener, for those who have a token; its address is ``guarded``."""
    named = "listener.name.guarded"
    properties = {
        f"{named}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{named}.oauthbearer.sasl.jaas.config": f'{LOGIN} required unsecuredLoginStringClaim_sub="broker";',
    }
    with more_listeners({"GUARDED": "SASL_PLAINTEXT"}, properties) as (plain, at):
        yield SimpleNamespace(plain=plain, guarded=at)


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
