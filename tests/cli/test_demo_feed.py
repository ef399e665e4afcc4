import time
from pathlib import Path
from typing import Any

import pytest

from eos_client.cli.demo.feed import Feed
from eos_client.cli.demo.input_file import open_input
from eos_client.confluent.admin.topic_records import TopicLoader
from eos_client.errors import ClusterUnfitError
from tests.support.waiting import wait_for


@pytest.fixture
def feed_of(cluster: Any, tmp_path: Path) -> Any:
    def feed_of(lines: list[str], duration_s: float) -> tuple[Feed, str]:
        path = tmp_path / "lines.txt"
        path.write_text("".join(f"{line}\n" for line in lines))
        topic = cluster.topic("fed", 3)
        return Feed(open_input(str(path)), TopicLoader(cluster.bootstrap_servers, topic, {}), 3, duration_s), topic

    return feed_of


def load_until(feed: Feed, count: int) -> None:
    def loaded() -> bool:
        feed.advance()
        return feed.loaded >= count

    wait_for(loaded, f"{count} records")


def test_the_feed_waits_at_the_released_share_and_then_goes_on(feed_of: Any) -> None:
    feed, _topic = feed_of([str(number) for number in range(100)], 0.1)
    feed.release(0.4)
    load_until(feed, 40)
    time.sleep(0.4)
    feed.advance()
    assert (feed.loaded, feed.released) == (40, 40)
    feed.release(1.0)
    load_until(feed, feed.total)
    assert feed.loaded == 100


def test_the_feed_takes_its_time_as_a_stream_does(feed_of: Any) -> None:
    feed, _topic = feed_of([str(number) for number in range(1000)], 1.5)
    feed.release(1.0)
    started_at = time.monotonic()
    load_until(feed, feed.total)
    assert 1.2 < time.monotonic() - started_at < 60


def test_lines_without_a_key_take_turns_and_those_with_one_stay_together(feed_of: Any, cluster: Any) -> None:
    plain = [f"line {number}" for number in range(9)]
    keyed = [f'{{"customer_id": "C-1", "n": {number}}}' for number in range(5)]
    feed, topic = feed_of(plain + keyed, 0.1)
    feed.release(1.0)
    load_until(feed, feed.total)
    records = cluster.read(topic, 3)
    for partition in range(3):
        own = [record.value.decode() for record in records if record.partition == partition]
        assert [value for value in own if value in plain] == plain[partition::3]
    homes = {record.partition for record in records if record.value.startswith(b"{")}
    assert len(homes) == 1
    assert [r.value.decode() for r in records if r.value.startswith(b"{")] == keyed


def test_a_feed_that_nobody_advances_loads_nothing_more(feed_of: Any) -> None:
    feed, _topic = feed_of([str(number) for number in range(100)], 60.0)
    feed.release(1.0)
    load_until(feed, 1)
    assert feed.loaded < 100


def test_a_line_that_the_topic_refuses_is_the_feeds_error(feed_of: Any) -> None:
    feed, _topic = feed_of(["x" * 3_000_000], 0.1)
    feed.release(1.0)
    with pytest.raises(ClusterUnfitError, match="3000000 bytes cannot be written"):
        load_until(feed, 1)
