"""The function that gets tokens (SASL OAUTHBEARER) travels to the executors; a cluster: test_local_secured_cluster."""

from __future__ import annotations

import pickle
import threading

import pytest

from eos_client import errors
from eos_client.integration.spark.settings import SinkSettings
from eos_client.integration.spark.worker_clients import cluster_key
from tests.support.secured_broker import token_for


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
