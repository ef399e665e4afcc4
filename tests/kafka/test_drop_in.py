"""The wrappers stand where confluent_kafka's classes stood: every method, every way to construct, every misuse."""

import ast
import inspect
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from eos_client import EosConsumer, EosProducer
from eos_client.errors import ConfigurationError
from eos_client.testing.free_ports import free_ports

STUB = Path(confluent_kafka.__file__).with_name("cimpl.pyi")
PAIRS = [(Consumer, EosConsumer), (Producer, EosProducer)]
# What the stub shows with names, the C function takes by position only.
BY_POSITION_ONLY = {"send_offsets_to_transaction"}


def stubbed_methods(theirs):
    """The stub's methods of that class by name; of an overloaded one, every variant."""
    module = ast.parse(STUB.read_text())
    (found,) = (n for n in module.body if isinstance(n, ast.ClassDef) and n.name == theirs.__name__)
    methods: dict[str, list[ast.arguments]] = {}
    for node in found.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            methods.setdefault(node.name, []).append(node.args)
    return methods


METHODS = [
    pytest.param(ours, name, variant, id=f"{theirs.__name__}.{name}")
    for theirs, ours in PAIRS
    for name, variants in stubbed_methods(theirs).items()
    for variant in variants
]


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
def test_has_every_public_method_of_the_installed_class(theirs, ours):
    public = {name for name in dir(theirs) if not name.startswith("_")} | set(stubbed_methods(theirs))
    assert public <= set(dir(ours))
    assert all(callable(getattr(ours, name)) for name in public)


@pytest.mark.parametrize(("ours", "name", "variant"), METHODS)
def test_takes_the_same_arguments_by_position_and_by_name(ours, name, variant):
    signature = inspect.signature(getattr(ours, name))
    positional = [argument.arg for argument in variant.args]
    named = [argument.arg for argument in variant.kwonlyargs]
    required = len(positional) - len(variant.defaults)
    signature.bind(*positional[:required])
    signature.bind(*positional)
    if name not in BY_POSITION_ONLY:
        signature.bind("self", **dict.fromkeys(positional[1:] + named))


@pytest.mark.parametrize(("ours", "name", "variant"), METHODS)
def test_has_the_same_defaults(ours, name, variant):
    parameters = inspect.signature(getattr(ours, name)).parameters
    defaults = dict(zip([a.arg for a in variant.args[::-1]], variant.defaults[::-1], strict=False))
    for key, default in defaults.items():
        if key in parameters:
            assert parameters[key].default == ast.literal_eval(default), key


@pytest.fixture
def nowhere():
    """Settings of a broker that is not there."""
    return {"bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}", "log_level": 0}


@pytest.fixture
def both_consumers(nowhere):
    """Their consumer and ours, neither with a broker."""
    pair = Consumer({**nowhere, "group.id": "g"}), EosConsumer({**nowhere, "group.id": "g"})
    yield pair
    for consumer in pair:
        consumer.close()


@pytest.fixture
def both_producers(nowhere):
    """Their producer and ours, neither with a broker, both with a transactional.id."""
    settings = {**nowhere, "transactional.id": "t"}
    pair = Producer(settings), EosProducer(settings)
    yield pair
    for producer in pair:
        producer.close()


def test_is_constructed_from_a_dict_from_keywords_or_from_both_with_the_keywords_winning(nowhere):
    given: dict[str, Any] = {**nowhere, "group.id": "from the dict"}
    keyword: dict[str, Any] = {"group.id": "from the dict"}
    for consumer in (
        EosConsumer(given),
        EosConsumer(**given),
        EosConsumer({**nowhere, "group.id": "not this"}, **keyword),
    ):
        with consumer:
            assert consumer.settings["group.id"] == "from the dict"
    given = {**nowhere, "transactional.id": "from the dict"}
    keyword = {"transactional.id": "from the dict"}
    for producer in (
        EosProducer(given),
        EosProducer(**given),
        EosProducer({**given, "transactional.id": ""}, **keyword),
    ):
        with producer:
            assert producer.transactional_id == "from the dict"


def test_leaves_the_callers_dict_alone(nowhere):
    settings = {**nowhere, "group.id": "g"}
    with EosConsumer(settings):
        assert settings == {**nowhere, "group.id": "g"}
    settings = dict(nowhere)
    with EosProducer(settings):
        assert settings == nowhere


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
@pytest.mark.parametrize("arguments", [(), ("localhost:9092",), (None,)], ids=repr)
def test_raises_type_error_without_a_configuration_dict(theirs, ours, arguments):
    for cls in (theirs, ours):
        with pytest.raises(TypeError):
            cls(*arguments)


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
def test_an_unknown_property_is_refused_with_their_exception_and_code(theirs, ours, nowhere):
    for cls in (theirs, ours):
        with pytest.raises(KafkaException) as refused:
            cls({**nowhere, "group.id": "g", "no.such.property": 1})
        assert refused.value.args[0].code() == KafkaError._INVALID_ARG
    assert isinstance(refused.value, ConfigurationError)


def test_a_missing_group_id_is_the_value_error_that_it_is_in_theirs(nowhere):
    for cls in (Consumer, EosConsumer):
        with pytest.raises(ValueError, match=r"group\.id"):
            cls(nowhere)


MISUSED_CONSUMER = {
    "subscribe to a str": lambda c: c.subscribe("orders"),
    "an on_assign that is no function": lambda c: c.subscribe(["orders"], on_assign=1),
    "consume a negative number": lambda c: c.consume(-1, 0.05),
    "consume too many": lambda c: c.consume(1_000_001, 0.05),
    "commit message and offsets": lambda c: c.commit(message=1, offsets=[]),
    "commit something else as message": lambda c: c.commit(message=1),
    "commit with nothing to commit": lambda c: c.commit(asynchronous=False),
    "store nothing": lambda c: c.store_offsets(),
    "seek to a non-partition": lambda c: c.seek(1),
    "pause a non-partition": lambda c: c.pause("orders"),
    "resume a non-partition": lambda c: c.resume("orders"),
    "committed without a broker": lambda c: c.committed([TopicPartition("orders", 0)], timeout=0.05),
    "watermarks without a broker": lambda c: c.get_watermark_offsets(TopicPartition("orders", 0), timeout=0.05),
    "times without a broker": lambda c: c.offsets_for_times([TopicPartition("orders", 0, 1)], timeout=0.05),
    "list_topics without a broker": lambda c: c.list_topics(timeout=0.05),
}
MISUSED_PRODUCER = {
    "begin before init": lambda p: p.begin_transaction(),
    "commit before init": lambda p: p.commit_transaction(0.05),
    "abort before init": lambda p: p.abort_transaction(0.05),
    "produce before begin": lambda p: p.produce("orders", b""),
    "produce without a topic": lambda p: p.produce(),
    "produce what is no bytes": lambda p: p.produce("orders", 1.5),
    "send_offsets with keywords": lambda p: p.send_offsets_to_transaction(positions=[], group_metadata=b""),
    "list_topics without a broker": lambda p: p.list_topics(timeout=0.05),
}


def raised_by(misuse, client):
    """The exception and, if it is a KafkaException, its code."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  which one is the question
        misuse(client)
    error = caught.value
    return error, error.args[0].code() if isinstance(error, KafkaException) else None


@pytest.mark.parametrize("misuse", MISUSED_CONSUMER.values(), ids=MISUSED_CONSUMER)
def test_a_misused_consumer_raises_what_theirs_raises(misuse, both_consumers):
    (expected, code), (error, our_code) = (raised_by(misuse, consumer) for consumer in both_consumers)
    assert isinstance(error, type(expected)), (error, expected)
    assert our_code == code


@pytest.mark.parametrize("misuse", MISUSED_PRODUCER.values(), ids=MISUSED_PRODUCER)
def test_a_misused_producer_raises_what_theirs_raises(misuse, both_producers):
    (expected, code), (error, our_code) = (raised_by(misuse, producer) for producer in both_producers)
    assert isinstance(error, type(expected)), (error, expected)
    assert our_code == code


def test_what_needs_no_broker_answers_as_theirs_does(both_consumers, both_producers):
    place = TopicPartition("orders", 0)
    for consumer in both_consumers:
        assert consumer.consume(0, 0.05) == []
        assert consumer.consume(num_messages=2, timeout=0) == []
        assert consumer.poll(timeout=0) is None
        assert consumer.assignment() == []
        assert [p.offset for p in consumer.position([place])] == [-1001]
        assert consumer.unsubscribe() is None
    theirs, ours = both_consumers
    assert isinstance(ours.consumer_group_metadata(), type(theirs.consumer_group_metadata()))
    assert type(ours.memberid()) in {type(theirs.memberid()), str}
    for producer in both_producers:
        assert bool(producer)
        assert producer.flush(0) == 0


@pytest.mark.parametrize(
    "call", ["poll", "consume", "assignment", "commit", "consumer_group_metadata", "unsubscribe", "memberid"]
)
def test_a_closed_consumer_raises_runtime_error_as_theirs_does(call, both_consumers):
    for consumer in both_consumers:
        consumer.close()
        consumer.close()
        with pytest.raises(RuntimeError):
            getattr(consumer, call)()


@pytest.mark.parametrize("call", [("poll", 0), ("flush", 0), ("produce", "orders"), ("begin_transaction",)])
def test_a_closed_producer_raises_as_theirs_does(call, both_producers):
    theirs, ours = both_producers
    for producer in both_producers:
        assert producer.close() is True
        assert producer.close() is True
    name, *arguments = call
    with pytest.raises(RuntimeError):
        getattr(theirs, name)(*arguments)
    with pytest.raises(RuntimeError):
        getattr(ours, name)(*arguments)
