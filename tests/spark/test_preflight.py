"""What the sink checks of a cluster before its first batch, without a cluster."""

import re
from typing import Any
from unittest.mock import Mock

import pytest

from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.errors import ClusterUnfitError, ConfigurationError
from eos_client.integration.spark import EosDatabaseSink, EosKafkaSink, preflight


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(preflight, "_SPREAD_WAIT_S", 0.0)
    made = Mock(spec=ClusterAdmin)
    made.cluster.return_value.brokers = {1: "localhost:9092"}
    made.broker_settings.return_value = {}
    made.topics.return_value = {"recepits": None}
    made.partition_counts.return_value = {"receipts": 4}
    return made


def test_no_producer_asks_for_a_topic_that_is_missing(admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "SlotProducer", Mock(side_effect=AssertionError("the brokers may create the topic")))
    settings = EosKafkaSink("localhost:9092", "recepits", sink_id="s").settings
    with pytest.raises(ClusterUnfitError, match=r"output topic 'recepits' does not exist .* did you mean 'receipts'\?"):
        preflight.check_driver_and_cluster(settings, admin)


def test_a_topic_that_is_seen_late_is_not_missing(admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_SPREAD_WAIT_S", 60.0)
    monkeypatch.setattr(preflight, "_ASK_AGAIN_S", 0.0)
    asked = Mock(side_effect=[{"recepits": None}, {"recepits": object()}])
    admin.topics = asked
    preflight._require_topic("recepits", admin)
    assert asked.call_count == 2


@pytest.mark.parametrize("batch_id", ["0", 1.0, None, -1])
@pytest.mark.parametrize(
    "sink", [EosKafkaSink("localhost:9092", "t", sink_id="s"), EosDatabaseSink("sqlite://", "t", sink_id="s")]
)
def test_what_is_no_batch_number_is_refused_and_not_taken_for_a_lost_ledger(sink: Any, batch_id: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"batch_id={re.escape(repr(batch_id))} must be a whole number"):
        sink(None, batch_id)
