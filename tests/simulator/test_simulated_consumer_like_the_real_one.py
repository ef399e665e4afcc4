"""The same calls on confluent_kafka's consumer, which needs no broker for them, and on the simulated one."""

import inspect

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from eos_client.testing.simulator import SimulatedCluster
from eos_client.testing.simulator.clients.consumer import SimulatedConsumer

BASE = {"bootstrap.servers": "localhost:1", "group.id": "g", "log_level": 0}
ZERO, ONE, SEVEN = TopicPartition("t", 0, 5), TopicPartition("t", 1), TopicPartition("t", 7, 5)
BROKEN = Message(topic="t", partition=1, offset=3, error=KafkaError(3))
GOOD = Message(topic="t", partition=1, offset=3)


def simulated(settings):
    cluster = SimulatedCluster()
    cluster.create_topic("t", 8)
    return cluster.consumer(settings)


def outcome(call, client):
    """What a call returns or raises, comparable between both."""
    try:
        result = call(client)
    except KafkaException as error:
        return "KafkaException", error.args[0].code(), error.args[0].str()
    except Exception as error:  # noqa: BLE001  # compared by type and text
        return type(error).__name__, str(error)
    if isinstance(result, list):
        return [(p.topic, p.partition, p.offset) if isinstance(p, TopicPartition) else p for p in result]
    return None if result is None or isinstance(result, (Consumer, SimulatedConsumer)) else result


def both(call, settings, before=None):
    clients = (Consumer(settings), simulated(settings))
    try:
        for client in clients:
            if before is not None:
                before(client)
        return [outcome(call, client) for client in clients]
    finally:
        for client in clients:
            client.close()


FRESH = {
    "poll": lambda c: c.poll(0),
    "poll of None": lambda c: c.poll(None),
    "consume": lambda c: c.consume(1, 0),
    "consume of none": lambda c: c.consume(0, 0),
    "consume of less": lambda c: c.consume(-1, 0),
    "consume of too many": lambda c: c.consume(1_000_001, 0),
    "assignment": lambda c: c.assignment(),
    "memberid": lambda c: c.memberid(),
    "metadata": lambda c: c.consumer_group_metadata(),
    "commit of nothing": lambda c: c.commit(asynchronous=False),
    "commit of nothing later": lambda c: c.commit(),
    "commit of no offsets": lambda c: c.commit(offsets=[], asynchronous=False),
    "commit of no valid offset": lambda c: c.commit(offsets=[ONE], asynchronous=False),
    "commit of a logical offset": lambda c: c.commit(offsets=[TopicPartition("t", 0, -2)], asynchronous=False),
    "commit of both": lambda c: c.commit(message=GOOD, offsets=[]),
    "commit of an error": lambda c: c.commit(message=BROKEN),
    "position": lambda c: c.position([ZERO]),
    "pause": lambda c: c.pause([ZERO]),
    "resume": lambda c: c.resume([ZERO]),
    "store of neither": lambda c: c.store_offsets(),
    "store with auto store": lambda c: c.store_offsets(offsets=[ZERO]),
    "subscribe to nothing": lambda c: c.subscribe([]),
    "subscribe to a name": lambda c: c.subscribe("t"),
    "subscribe to a tuple": lambda c: c.subscribe(("t",)),
    "subscribe with no callable": lambda c: c.subscribe(["t"], on_assign=3),
    "subscribe with None": lambda c: c.subscribe(["t"], on_lost=None),
    "subscribe by position": lambda c: c.subscribe(["t"], lambda *_: 1, lambda *_: 1, lambda *_: 1),
    "unsubscribe": lambda c: c.unsubscribe(),
    "assign a tuple": lambda c: c.assign((ZERO,)),
    "assign names": lambda c: c.assign(["t"]),
    "assign twice the same": lambda c: c.assign([ONE, ONE]),
    "watermarks as cached": lambda c: c.get_watermark_offsets(ZERO, cached=True),
    "credentials": lambda c: c.set_sasl_credentials("a", "b"),
}
ASSIGNED = {
    "assignment": lambda c: c.assignment(),
    "position": lambda c: c.position([ZERO, SEVEN]),
    "seek": lambda c: c.seek(TopicPartition("t", 0, 7)),
    "seek elsewhere": lambda c: c.seek(SEVEN),
    "seek to what is no partition": lambda c: c.seek("t"),
    "add what is there": lambda c: c.incremental_assign([ZERO]),
    "take what is not there": lambda c: c.incremental_unassign([SEVEN]),
    "add": lambda c: (c.incremental_assign([SEVEN]), c.assignment())[1],
    "take": lambda c: (c.incremental_unassign([ZERO]), c.assignment())[1],
    "unassign twice": lambda c: (c.unassign(), c.unassign(), c.assignment())[2],
    "unsubscribe": lambda c: (c.unsubscribe(), c.assignment())[1],
    "store": lambda c: c.store_offsets(offsets=[ZERO]),
    "store a message": lambda c: c.store_offsets(message=GOOD),
    "store an error": lambda c: c.store_offsets(message=BROKEN),
    "store partly": lambda c: c.store_offsets(offsets=[ZERO, SEVEN]),
    "store elsewhere": lambda c: c.store_offsets(offsets=[SEVEN]),
}
CLOSED = {
    **{
        name: (lambda c, n=name, a=args: getattr(c, n)(*a))
        for name, args in {
            "poll": (0,),
            "consume": (1, 0),
            "assignment": (),
            "memberid": (),
            "consumer_group_metadata": (),
            "commit": (),
            "position": ([],),
            "seek": (ZERO,),
            "pause": ([],),
            "resume": ([],),
            "subscribe": (["t"],),
            "unsubscribe": (),
            "assign": ([],),
            "unassign": (),
            "incremental_assign": ([],),
            "incremental_unassign": ([],),
            "committed": ([], 0.1),
            "get_watermark_offsets": (ZERO, 0.1),
            "offsets_for_times": ([], 0.1),
            "list_topics": ("t", 0.1),
            "cluster_id": (0.1,),
            "store_offsets": (),
            "set_sasl_credentials": ("a", "b"),
            "close": (),
            "__enter__": (),
        }.items()
    }
}
REFUSED_SETTINGS = [
    {"foo.bar": 1},
    {"auto.offset.reset": "x"},
    {"group.protocol": "consumer", "session.timeout.ms": 6000},
    {"group.protocol": "consumer", "heartbeat.interval.ms": 6000},
    {"group.protocol": "consumer", "partition.assignment.strategy": "range"},
    {"partition.assignment.strategy": "sticky"},
    {"max.poll.interval.ms": 1000},
]


@pytest.mark.parametrize("name", FRESH)
def test_a_fresh_client_answers_alike(name):
    real, ours = both(FRESH[name], BASE)
    assert ours == real


@pytest.mark.parametrize("name", ASSIGNED)
def test_an_assigned_client_answers_alike(name):
    settings = {**BASE, "enable.auto.offset.store": False, "enable.auto.commit": False}
    real, ours = both(ASSIGNED[name], settings, before=lambda c: c.assign([ZERO, ONE]))
    assert ours == real


@pytest.mark.parametrize("name", CLOSED)
def test_a_closed_client_answers_alike(name):
    real, ours = both(CLOSED[name], BASE, before=lambda c: c.close())
    assert ours == real


def test_a_context_manager_closes():
    for client in (Consumer(BASE), simulated(BASE)):
        with client as entered:
            assert entered is client
        with pytest.raises(RuntimeError, match="Consumer closed"):
            client.poll(0)


def test_metadata_of_a_kip_848_member_looks_alike():
    settings = {**BASE, "group.protocol": "consumer", "group.instance.id": "i"}
    real, ours = both(lambda c: (c.consumer_group_metadata(), c.memberid()), settings)
    shapes = [metadata.replace(member.encode(), b"?") for metadata, member in (real, ours)]
    assert shapes[0] == shapes[1] == b"CGMDv2:\xff\xff\xff\xffg\x00?\x00\x00i\x00"
    assert len(real[1]) == len(ours[1])


@pytest.mark.parametrize("extra", REFUSED_SETTINGS, ids=lambda extra: next(iter(extra.items())))
def test_settings_are_refused_alike(extra):
    real, ours = (outcome(make, {**BASE, **extra}) for make in (Consumer, simulated))
    assert ours == real
    assert real is not None


def test_settings_without_a_group_are_refused_alike():
    settings = {"bootstrap.servers": "localhost:1", "log_level": 0}
    real, ours = (outcome(make, settings) for make in (Consumer, simulated))
    assert ours == real


def test_no_method_of_the_real_class_is_missing():
    public = {name for name in dir(Consumer) if not name.startswith("_")}
    assert public <= set(dir(SimulatedConsumer))
    ours = {name for name, _ in inspect.getmembers(SimulatedConsumer, callable) if not name.startswith("_")}
    assert ours == public
