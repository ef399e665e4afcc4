"""The wrappers stand where confluent_kafka's classes stood: every method, every way to construct, every misuse."""

import ast
import inspect
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

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


def test_the_member_id_is_none_where_theirs_is(both_consumers):
    theirs, ours = both_consumers
    assert ours.memberid() == theirs.memberid()


def test_settings_of_default_topic_config_count_and_win_as_in_theirs(nowhere):
    topic: dict[str, Any] = {"default.topic.config": {"auto.offset.reset": "latest", "auto.commit.enable": False}}
    with EosConsumer({**nowhere, "group.id": "g", "auto.offset.reset": "earliest", **topic}) as consumer:
        assert consumer.settings["auto.offset.reset"] == "latest"
    with pytest.raises(ConfigurationError, match="acks=1"):
        EosProducer({**nowhere, "default.topic.config": {"acks": 1}})


@pytest.mark.parametrize("given", [None, "sasl.password=hunter2"])
@pytest.mark.parametrize("client", [EosConsumer, EosProducer])
def test_a_default_topic_config_that_is_no_mapping_is_refused(nowhere, client, given):
    with pytest.raises(ConfigurationError, match=r"default\.topic\.config is of type \w+ and no mapping") as refused:
        client({**nowhere, "group.id": "g", "default.topic.config": given})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("name", ["error_cb", "stats_cb", "on_commit"])
def test_a_consumers_callback_that_nobody_can_call_is_refused_as_theirs_refuses_it(nowhere, name):
    with pytest.raises((ConfigurationError, TypeError), match=f"{name}.*callable"):
        EosConsumer({**nowhere, "group.id": "g", name: "a name"})


def test_a_safe_value_that_is_taken_away_with_none_comes_back(nowhere):
    """None means librdkafka's own default, and that commits automatically."""
    with EosConsumer({**nowhere, "group.id": "g", "enable.auto.commit": None, "isolation.level": None}) as consumer:
        assert consumer.settings["enable.auto.commit"] is False
        assert consumer.settings["isolation.level"] == "read_committed"
    seen: list[Any] = []

    def factory(settings):
        seen.append(settings)
        return Producer(settings)

    EosProducer(
        {**nowhere, "enable.idempotence": None, "acks": None, "transactional.id": None}, factory=factory
    ).close()
    assert (seen[0]["enable.idempotence"], seen[0]["acks"]) == (True, "all")


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
@pytest.mark.parametrize("arguments", [(), ("localhost:9092",)], ids=repr)
def test_a_wrong_constructor_argument_is_named_in_their_words(theirs, ours, arguments):
    for cls in (theirs, ours):
        with pytest.raises(TypeError, match="expected configuration dict"):
            cls(*arguments)


PLACES = [TopicPartition("orders", 0, 1)]
CALLS_OF_A_CONSUMER = {
    "subscribe": (["orders"],),
    "assign": (PLACES,),
    "seek": (PLACES[0],),
    "committed": (PLACES,),
    "position": (PLACES,),
    "get_watermark_offsets": (PLACES[0],),
    "offsets_for_times": (PLACES,),
} | dict.fromkeys(["poll", "consume", "commit", "assignment", "unassign", "unsubscribe", "list_topics", "close"], ())
CALLS_OF_A_PRODUCER = {
    "produce": ("orders", b""),
    "produce_batch": ("orders", [{"value": b""}]),
} | dict.fromkeys(
    [
        "poll",
        "flush",
        "purge",
        "init_transactions",
        "begin_transaction",
        "commit_transaction",
        "list_topics",
        "__len__",
    ],
    (),
)


@pytest.mark.parametrize(
    ("theirs", "ours", "call", "arguments"),
    [(*PAIRS[0], *each) for each in CALLS_OF_A_CONSUMER.items()]
    + [(*PAIRS[1], *each) for each in CALLS_OF_A_PRODUCER.items()],
)
def test_a_subclass_that_was_not_initialised_fails_as_theirs_does(theirs, ours, call, arguments):
    said = []
    for cls in (theirs, ours):
        forgetful = type("Forgetful", (cls,), {"__init__": lambda self: None})()
        try:
            said.append(getattr(forgetful, call)(*arguments))
        except RuntimeError as error:
            said.append(str(error).partition(":")[0])
    if call != "close":
        assert said[0] == said[1]


BATCHES = {
    "a str": "records",
    "None": None,
    "a tuple": ({"value": b""},),
    "a list of bytes": [b"record"],
    "a value that is no bytes": [{"value": 1}],
    "a key that is no bytes": [{"value": b"", "key": 1}],
    "a partition that is no int": [{"value": b"", "partition": "0"}],
    "a timestamp": [{"value": b"", "timestamp": 1}],
    "headers that are none": [{"value": b"", "headers": 1}],
    "a message too large": [{"value": b"x" * 2_000_000}, {"value": b"small"}],
    "nothing": [],
    "two": [{"value": b"1"}, {"value": "2", "callback": print}],
}


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_a_batch_is_checked_counted_and_marked_as_theirs_is(batch, nowhere):
    said = []
    for cls in (Producer, EosProducer):
        messages = [dict(m) if isinstance(m, dict) else m for m in batch] if isinstance(batch, list) else batch
        producer = cls({**nowhere, "enable.idempotence": True})
        try:
            counted: Any = producer.produce_batch("orders", messages)
        except Exception as error:  # noqa: BLE001  # which one is the question
            counted = type(error), str(error)
        marked = [m["_error"].code() for m in messages or () if isinstance(m, dict) and "_error" in m]
        said.append((counted, marked))
        producer.purge()
        producer.close()
    assert said[0] == said[1]


class ErrorEvent:
    """What poll() returns when the client library has an error to tell."""

    def error(self):
        return KafkaError(KafkaError._MAX_POLL_EXCEEDED, "too slow")


@pytest.mark.parametrize(
    ("arguments", "expected", "code"),
    [
        ({"message": ErrorEvent()}, KafkaException, KafkaError._INVALID_ARG),
        ({"message": 1}, TypeError, None),
        ({"message": ErrorEvent(), "offsets": PLACES}, ValueError, None),
    ],
    ids=["an error event", "no message", "message and offsets"],
)
def test_a_subscribed_consumer_refuses_to_commit_what_is_no_record(arguments, expected, code, nowhere):
    with EosConsumer({**nowhere, "group.id": "g"}) as consumer:
        consumer.subscribe(["orders"])
        error, its_code = raised_by(lambda c: c.commit(**arguments), consumer)
    assert isinstance(error, expected)
    assert its_code == code


def test_a_message_that_was_made_by_hand_has_no_offset_to_commit(both_consumers):
    for consumer in both_consumers:
        consumer.assign(PLACES)
        assert consumer.commit(message=Message(topic="orders", partition=0)) is None


@pytest.mark.parametrize("call", ["begin_transaction", "commit_transaction", "abort_transaction"])
def test_an_id_that_was_not_registered_in_time_is_the_retriable_conflict_that_it_is_in_theirs(call, nowhere):
    codes = []
    for producer in (Producer({**nowhere, "transactional.id": "a"}), EosProducer({**nowhere, "transactional.id": "a"})):
        with pytest.raises(KafkaException):
            producer.init_transactions(0.2)
        with pytest.raises(KafkaException) as raised:
            getattr(producer, call)(*([0.2] if call != "begin_transaction" else []))
        codes.append((raised.value.args[0].name(), raised.value.args[0].retriable(), raised.value.args[0].fatal()))
    assert codes[0] == codes[1] == ("_CONFLICT", True, False)
