"""eos_client.confluent.diagnosis: what a start that got no answer says about the cluster, by what the cluster tells."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from eos_client.confluent import diagnosis
from eos_client.confluent.admin.cluster_admin import ClusterDescription
from eos_client.confluent.last_errors import LastErrors
from eos_client.core.model import TopicDescription
from eos_client.errors import ClusterUnavailableError, ClusterUnfitError, EosError, RetriableError

SETTINGS = {
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.replication.factor": "3",
}
NEITHER = {"__transaction_state": None, "__consumer_offsets": None}


def log(name: str, in_sync: int) -> dict[str, TopicDescription | None]:
    return {name: TopicDescription(name, 50, 3, in_sync, ())}


class _Cluster:
    """What a `ClusterAdmin` tells: `brokers` that are up, and the internal topics or the refusal to describe them."""

    def __init__(
        self, brokers: int, topics: Mapping[str, TopicDescription | None] | EosError, settings: Mapping[str, str]
    ) -> None:
        self._brokers, self._topics, self._settings = brokers, topics, dict(settings)

    def cluster(self) -> ClusterDescription:
        return ClusterDescription("id", {number: f"b{number}:9092" for number in range(self._brokers)})

    def broker_settings(self, _: int) -> dict[str, str]:
        return self._settings

    def topics(self, names: Sequence[str]) -> dict[str, TopicDescription | None]:
        if isinstance(self._topics, EosError):
            raise self._topics
        return {name: self._topics[name] for name in names if name in self._topics}


@pytest.fixture
def why(monkeypatch: pytest.MonkeyPatch) -> Callable[..., EosError]:
    """A function that tells the error of a start in a cluster of so many brokers with these internal topics."""

    def ask(
        brokers: int,
        topics: Mapping[str, TopicDescription | None] | EosError,
        shown: Mapping[str, str] = SETTINGS,
    ) -> EosError:
        monkeypatch.setattr(diagnosis, "ClusterAdmin", lambda *_, **__: nullcontext(_Cluster(brokers, topics, shown)))
        settings: dict[str, Any] = {"bootstrap.servers": "b0:9092"}
        return diagnosis.why_init_failed(settings, LastErrors(None), 10.0, RetriableError("no answer"), simulated=False)

    return ask


def test_a_transaction_log_that_cannot_be_created_is_the_reason(why: Callable[..., EosError]) -> None:
    error = why(2, NEITHER)
    assert isinstance(error, ClusterUnfitError)
    assert "2 broker(s), but transaction.state.log.replication.factor=3" in str(error)


def test_an_offsets_topic_that_cannot_be_created_is_the_reason(why: Callable[..., EosError]) -> None:
    error = why(2, NEITHER | log("__transaction_state", 2))
    assert isinstance(error, ClusterUnfitError)
    assert "2 broker(s), but offsets.topic.replication.factor=3" in str(error)


@pytest.mark.parametrize("in_sync", [2, 3])
def test_logs_that_exist_are_not_blamed_for_a_broker_that_is_down(why: Callable[..., EosError], in_sync: int) -> None:
    error = why(2, log("__transaction_state", in_sync) | log("__consumer_offsets", 1))
    assert isinstance(error, ClusterUnavailableError)
    assert "brokers answer, the transaction coordinator does not: no answer" in str(error)
    assert "replication.factor" not in str(error)


@pytest.mark.parametrize("alive", [1, 5])
def test_a_transaction_log_with_too_few_replicas_in_sync_is_told(why: Callable[..., EosError], alive: int) -> None:
    error = why(alive, log("__transaction_state", 1) | log("__consumer_offsets", 1))
    assert isinstance(error, ClusterUnavailableError)
    assert "__transaction_state has a partition with 1 of 3 replicas in sync" in str(error)
    assert "transaction.state.log.min.isr=2: it takes no writes" in str(error)


def test_logs_that_may_not_be_described_are_not_blamed(why: Callable[..., EosError]) -> None:
    error = why(2, ClusterUnfitError("the cluster would not describe topic '__transaction_state'"))
    assert isinstance(error, ClusterUnavailableError)
    assert "brokers answer, the transaction coordinator does not: no answer" in str(error)
    assert "describe topic" not in str(error)


def test_logs_that_may_not_be_described_are_named_as_a_possible_reason(why: Callable[..., EosError]) -> None:
    error = why(2, ClusterUnfitError("the cluster would not describe topic '__transaction_state'"))
    assert isinstance(error, ClusterUnavailableError)
    assert "2 broker(s), but transaction.state.log.replication.factor=3, and whether it exists is not known" in str(
        error
    )


ONE_COPY = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
    "min.insync.replicas": "2",
}


USABLE = TopicDescription("__transaction_state", 50, 1, 1, ())
ONE_OF_THREE = TopicDescription("__consumer_offsets", 50, 3, 1, ())


def test_offsets_that_could_not_be_committed_are_a_possible_reason_of_a_time_out_that_need_not_last(
    why: Callable[..., EosError],
) -> None:
    """``init_transactions`` writes to the transaction log alone."""
    error = why(1, {"__transaction_state": USABLE, "__consumer_offsets": ONE_OF_THREE}, ONE_COPY)
    assert isinstance(error, ClusterUnavailableError)
    assert "the transaction coordinator does not: no answer; __consumer_offsets has a partition with 1 of 3" in str(
        error
    )


def test_logs_that_want_more_replicas_in_sync_than_they_have_are_no_reason(why: Callable[..., EosError]) -> None:
    """Brokers ask for no more than there are."""
    error = why(1, NEITHER, ONE_COPY | {"transaction.state.log.min.isr": "2"})
    assert isinstance(error, ClusterUnavailableError)
    assert "replicas" not in str(error)


def test_each_log_that_may_be_the_reason_is_named(why: Callable[..., EosError]) -> None:
    error = why(2, {"__consumer_offsets": ONE_OF_THREE}, SETTINGS | {"min.insync.replicas": "2"})
    assert isinstance(error, ClusterUnavailableError)
    assert "__transaction_state could not be created now" in str(error)
    assert "__consumer_offsets has a partition with 1 of 3 replicas in sync" in str(error)
