"""A broker that runs share: its log, of which each is judged by what was written since it began, and its address."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.waiting import WAIT_S
from tests.verification.brokers import RunningBroker
from tests.verification.proxy import KafkaProxy


def test_a_run_is_judged_by_what_its_broker_has_logged_since_it_began(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_bytes(b"of an earlier run\n")
    broker = RunningBroker("4.3.1", "127.0.0.1:9092", tmp_path, log)
    later = broker.from_now_on()
    assert later.log_lines() == []
    with log.open("ab") as end:
        end.write(b"of this run, \xff\n")
    assert later.log_lines() == ["of this run, \ufffd"]
    assert broker.log_lines() == ["of an earlier run", "of this run, \ufffd"]


def test_the_brokers_of_a_cluster_are_judged_by_the_logs_and_data_of_all(tmp_path: Path) -> None:
    logs = [tmp_path / name for name in ("1.log", "2.log")]
    for log in logs:
        log.write_text("of an earlier run\n")
    second = RunningBroker("4.3.1", "127.0.0.1:9092", tmp_path / "2", logs[1])
    first = RunningBroker("4.3.1", "127.0.0.1:9092", tmp_path / "1", logs[0], others=(second,)).from_now_on()
    assert first.directories == (tmp_path / "1", tmp_path / "2")
    assert first.log_lines() == []
    with logs[1].open("a") as end:
        end.write("of this run\n")
    assert first.log_lines() == ["of this run"]


@pytest.mark.kafka
def test_its_clients_are_told_the_port_of_its_proxy(proxied_broker: RunningBroker, proxy: KafkaProxy) -> None:
    assert proxied_broker.bootstrap == f"127.0.0.1:{proxy.port}"
    assert proxy.target_port != proxy.port
    cluster = AdminClient({"bootstrap.servers": f"127.0.0.1:{proxy.target_port}"}).list_topics(timeout=WAIT_S)
    assert [node.port for node in cluster.brokers.values()] == [proxy.port]
