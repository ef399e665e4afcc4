"""A broker that is away for longer than the session of the driver's lease: the query takes the lease again."""

from __future__ import annotations

import time

import pytest

from eos_client.testing import EmbeddedKafka
from tests.spark.rig.cluster_query import ClusterQuery
from tests.spark.rig.stories import CLUSTER

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

SESSION_S = 6.0  # no broker grants less
AWAY_S = SESSION_S + 4.0
SESSION = {"session.timeout.ms": str(int(SESSION_S * 1000)), "heartbeat.interval.ms": "1000"}


@pytest.mark.soak
@pytest.mark.parametrize("master", ["local[2,4]", CLUSTER])
def test_a_query_goes_on_after_a_broker_was_away_for_longer_than_the_session(tmp_path, master):
    with EmbeddedKafka() as broker:
        with ClusterQuery(broker.bootstrap_servers, tmp_path, batches=8, pace_s=0.5, config=SESSION) as stage:
            query = stage.start(master=master)
            stage.await_batches(query, 2)
            broker.shut_down()
            time.sleep(AWAY_S)
            broker.restart()
            stage.await_end(query)
            outcome = stage.judge()
        assert outcome.exactly_once, outcome
        assert "spark_lease_renewed" in query.log.read_text(errors="replace")
