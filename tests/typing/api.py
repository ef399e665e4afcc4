"""Every public name, used as an application would use it. Never run: mypy and pyright read it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tenacity
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.serialization import SerializationContext, StringDeserializer
from sqlalchemy import Connection, Engine, MetaData, Table
from typing_extensions import assert_type

import eos_client
from eos_client import (
    AsyncExactlyOnceLoop,
    CommitDecision,
    CommitGate,
    DeserializedRecord,
    EosConfig,
    EosConsumer,
    EosProducer,
    ExactlyOnceLoop,
    GroupGeneration,
    Outcome,
    OutputRecord,
    Record,
    errors,
    listeners,
    ports,
    testing,
)
from eos_client.clients import Transaction
from eos_client.clock import MonotonicClock
from eos_client.confluent.client_library import CONFLUENT_KAFKA
from eos_client.core.commit_gate import (
    CommitAttempt,
    CommitRuling,
    GateAssigned,
    GateLost,
    GatePolicy,
    GateScope,
    GateSettings,
    RevocationEnded,
    RevocationStarted,
    RuleName,
    WorkEnded,
)
from eos_client.core.loop_health import LoopHealth
from eos_client.core.model import InputPartition, InputPosition, ProducerLimits
from eos_client.integration.spark import EosDatabaseSink, EosKafkaSink, SinkProgress
from eos_client.integration.sql import (
    DatabaseConsumer,
    DatabaseLoop,
    OutboxRelay,
    create_outbox,
    outbox_table,
    write_outbox,
)
from eos_client.listeners import ApplicationCallbacks, ComposedListener, RevocationListener
from eos_client.observe import CommitSkipped, Counters, Event, SparkBatchWritten, TransactionCommitted, log_event
from eos_client.ports import ClientLibrary, Clock, RevocationWork
from eos_client.testing import (
    ContainerKafka,
    EmbeddedKafka,
    EmbeddedKafkaCluster,
    EmbeddedMysql,
    EmbeddedPostgres,
    KafkaBroker,
    SimulatedCluster,
)

KAFKA: dict[str, Any] = {"bootstrap.servers": "localhost:9092"}


# -- the loop --------------------------------------------------------------------------------------------------------


def price(record: Message) -> Iterator[OutputRecord]:
    yield OutputRecord("invoices", value=record.value(), key=record.key())
    yield OutputRecord(value=b"v", key="k", headers=[("h", b"1")], partition=3, timestamp_ms=1_700_000_000_000)
    yield OutputRecord("invoices", value=None, headers={"h": "text"})


def as_bytes(record: Message) -> list[bytes]:
    return [record.value() or b""]


def nothing(record: Message) -> None:
    del record


def all_at_once(records: list[Message]) -> list[OutputRecord]:
    return [OutputRecord("invoices", value=record.value()) for record in records]


def run_until_stopped() -> None:
    with ExactlyOnceLoop(EosConfig(KAFKA, group_id="billing"), ["orders"], price) as loop:
        assert_type(loop, ExactlyOnceLoop)
        assert_type(loop.run(), bool)
        assert_type(loop.counters, Counters)
        assert_type(loop.health(), LoopHealth)
        assert_type(loop.counters.as_dict(), dict[str, int])


async def price_later(record: Message) -> OutputRecord:
    return OutputRecord("invoices", value=record.value())


async def each_later(record: Message) -> AsyncIterator[bytes]:
    yield record.value() or b""


async def all_later(records: list[Message]) -> list[bytes]:
    return [record.value() or b"" for record in records]


async def run_in_an_event_loop() -> None:
    config = EosConfig(KAFKA, group_id="billing")
    loop = AsyncExactlyOnceLoop(config, ["orders"], price_later, concurrency_max=10)
    AsyncExactlyOnceLoop(config, ["orders"], each_later, output_topic="invoices", hook=observe)
    AsyncExactlyOnceLoop(config, ["orders"], transform_batch=all_later, clients=CONFLUENT_KAFKA)
    assert_type(loop, AsyncExactlyOnceLoop)
    assert_type(await loop.run(), bool)
    assert_type(loop.counters, Counters)
    assert_type(loop.gate, CommitGate)
    assert_type(loop.health(), LoopHealth)
    loop.stop("the reason")


def stop_from_elsewhere(loop: ExactlyOnceLoop) -> None:
    loop.stop()
    loop.stop("the reason")
    loop.close()


def with_every_option() -> ExactlyOnceLoop:
    config = EosConfig(
        KAFKA,
        group_id="billing",
        transactional_id="billing-0",
        consumer={"max.poll.interval.ms": 60_000},
        producer={"linger.ms": 5},
        commit_interval_s=0.5,
        max_records=10_000,
        batch_size=1000,
        poll_timeout_s=0.2,
        hold_limit_s=3,
        commit_timeout_s=5.0,
        start_timeout_s=20.0,
        recovery_timeout_s=30.0,
        shutdown_timeout_s=5.0,
        scope="partition",
        policy="block",
        commit_validation="assignment_epoch",
        on_error="dead_letter",
        dead_letter_topic="orders-dead",
        transform_attempts_max=3,
        transform_backoff_s=0.5,
    )
    assert_type(config.consumer_config(), dict[str, Any])
    assert_type(config.producer_config(), dict[str, Any])
    assert_type(config.gate_settings(), GateSettings)
    assert_type(config.open_limit_s, float)
    ExactlyOnceLoop(config, ("orders", "refunds"), nothing, clients=CONFLUENT_KAFKA)
    ExactlyOnceLoop(config, ["orders"], transform_batch=all_at_once)
    return ExactlyOnceLoop(config, ["orders"], as_bytes, output_topic="invoices", hook=observe)


def observe(event: Event) -> None:
    assert_type(event.name, str)
    assert_type(event.as_dict(), dict[str, Any])
    if isinstance(event, CommitSkipped):
        assert_type(event.revocation_generation, GroupGeneration)
        assert_type(event.held_for_s, float)
    elif isinstance(event, TransactionCommitted):
        assert_type(event.records_in, int)
    log_event(event)


class Elsewhere:
    """Another client library, in a time of its own."""

    @property
    def clock(self) -> Clock:
        return MonotonicClock()

    def consumer(self, settings: Mapping[str, Any]) -> Consumer:
        return Consumer(dict(settings))

    def producer(self, settings: Mapping[str, Any]) -> Producer:
        return Producer(dict(settings))


def on(library: ClientLibrary) -> None:
    assert_type(library.clock(), float)
    assert_type(library.clock.sleep(0.1), None)
    EosConsumer(KAFKA, factory=library.consumer, clock=library.clock)
    EosProducer(KAFKA, factory=library.producer, clock=library.clock)


def elsewhere() -> None:
    on(Elsewhere())
    on(CONFLUENT_KAFKA)


# -- keys and values of an application's own types --------------------------------------------------------------------


@dataclass
class Order:
    pieces: int


def read_order(value: bytes | None, context: SerializationContext) -> Order:
    return Order(len(value or context.topic))


def read_customer(key: bytes | None, context: SerializationContext) -> str:
    return (key or b"").decode()


def write_pieces(pieces: int, context: SerializationContext) -> bytes:
    return b"%d" % pieces


def bill(record: Record[str, Order]) -> Iterator[OutputRecord]:
    assert_type(record.key(), str)
    assert_type(record.value(), Order)
    yield OutputRecord(value=record.value().pieces, key=record.key())


def with_its_bytes(record: DeserializedRecord[str, Order]) -> OutputRecord:
    assert_type(record.value(), Order)
    return OutputRecord(value=record.raw.value(), key=record.raw.key())


def of_strings(record: Record[str, str]) -> None:
    del record


def typed_loop() -> None:
    config = EosConfig(
        KAFKA,
        group_id="billing",
        key_deserializer=read_customer,
        value_deserializer=read_order,
        value_serializer=write_pieces,
    )
    assert_type(config, EosConfig[str, Order])
    assert_type(ExactlyOnceLoop(config, ["orders"], bill), ExactlyOnceLoop[str, Order])
    ExactlyOnceLoop(config, ["orders"], lambda record: [b"%d" % record.value().pieces])
    assert_type(ExactlyOnceLoop(config, ["orders"], with_its_bytes), ExactlyOnceLoop[str, Order])
    ExactlyOnceLoop(config, ["orders"], lambda record: record.raw.value())
    ExactlyOnceLoop(config, ["orders"], of_strings)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ExactlyOnceLoop(
        config,
        ["orders"],
        lambda record: [record.value().price],  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    )


def bill_all(records: list[Record[str, Order]]) -> Iterator[OutputRecord]:
    for record in records:
        yield OutputRecord(value=record.value().pieces, key=record.key())


def all_with_their_bytes(records: list[DeserializedRecord[str, Order]]) -> list[OutputRecord]:
    return [OutputRecord(value=record.raw.value(), key=record.key()) for record in records]


def bill_each(records: Sequence[Record[str, Order]]) -> list[OutputRecord]:
    return [OutputRecord(value=record.value().pieces) for record in records]


def all_of_strings(records: list[Record[str, str]]) -> None:
    del records


def typed_loop_of_batches(config: EosConfig[str, Order]) -> None:
    assert_type(ExactlyOnceLoop(config, ["orders"], transform_batch=bill_all), ExactlyOnceLoop[str, Order])
    assert_type(ExactlyOnceLoop(config, ["orders"], transform_batch=all_with_their_bytes), ExactlyOnceLoop[str, Order])
    assert_type(ExactlyOnceLoop(config, ["orders"], transform_batch=bill_each), ExactlyOnceLoop[str, Order])
    ExactlyOnceLoop(
        config, ["orders"], transform_batch=lambda records: [b"%d" % each.value().pieces for each in records]
    )
    ExactlyOnceLoop(config, ["orders"], transform_batch=all_at_once)
    ExactlyOnceLoop(config, ["orders"], transform_batch=all_of_strings)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ExactlyOnceLoop(config, ["orders"], transform_batch=bill)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def bill_later(record: Record[str, Order]) -> OutputRecord:
    return OutputRecord(value=record.value().pieces, key=record.key())


async def with_its_bytes_later(record: DeserializedRecord[str, Order]) -> AsyncIterator[OutputRecord]:
    yield OutputRecord(value=record.raw.value(), key=record.key())


async def of_strings_later(record: Record[str, str]) -> None:
    del record


async def bill_all_later(records: list[Record[str, Order]]) -> list[OutputRecord]:
    return [OutputRecord(value=record.value().pieces) for record in records]


async def all_with_their_bytes_later(records: list[DeserializedRecord[str, Order]]) -> AsyncIterator[bytes]:
    for record in records:
        yield record.raw.value() or b""


async def all_of_strings_later(records: list[Record[str, str]]) -> None:
    del records


def typed_async_loop(config: EosConfig[str, Order]) -> AsyncExactlyOnceLoop[str, Order]:
    AsyncExactlyOnceLoop(config, ["orders"], price_later)
    AsyncExactlyOnceLoop(config, ["orders"], with_its_bytes_later)
    AsyncExactlyOnceLoop(config, ["orders"], of_strings_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    AsyncExactlyOnceLoop(config, ["orders"], bill)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    AsyncExactlyOnceLoop(config, ["orders"], transform_batch=all_later)
    AsyncExactlyOnceLoop(config, ["orders"], transform_batch=bill_all_later)
    AsyncExactlyOnceLoop(config, ["orders"], transform_batch=all_with_their_bytes_later)
    AsyncExactlyOnceLoop(config, ["orders"], transform_batch=all_of_strings_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    AsyncExactlyOnceLoop(config, ["orders"], transform_batch=bill_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    loop = AsyncExactlyOnceLoop(config, ["orders"], bill_later)
    assert_type(loop, AsyncExactlyOnceLoop[str, Order])
    return loop


def named_transforms(
    batch: ports.BatchTransform[str, Order],
    one: ports.AsyncTransform[str, Order],
    many: ports.AsyncBatchTransform[str, Order],
) -> None:
    named_transforms(bill_all, bill_later, bill_all_later)
    named_transforms(all_of_strings, bill_later, bill_all_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    named_transforms(batch, of_strings_later, many)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    named_transforms(batch, one, all_of_strings_later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def loop_with_a_policy() -> EosConfig:
    policy = tenacity.Retrying(wait=tenacity.wait_random(), stop=tenacity.stop_after_attempt(3))
    return EosConfig(KAFKA, group_id="billing", transform_retry=policy, transform_retry_limit_s=30)


def loop_with_confluents() -> None:
    config = EosConfig(KAFKA, group_id="billing", value_deserializer=StringDeserializer())
    ExactlyOnceLoop(config, ["orders"], lambda record: [str(record.value()).encode()])


def block_with_serialisers() -> None:
    consumer = EosConsumer({**KAFKA, "group.id": "billing", "value.deserializer": read_order})
    producer = EosProducer({**KAFKA, "value.serializer": write_pieces})
    with producer.transaction(consumer) as txn:
        message: Record[bytes | None, Order]
        for message in consumer.consume(500, 0.1):
            try:
                txn.produce("invoices", message.value().pieces)
            except errors.InputUnreadableError as error:  # noqa: PERF203  # one record's failure is not the others'
                assert_type((error.topic, error.partition, error.offset), tuple[str, int, int])
                txn.dead_letter(message, error, topic="orders-dead")


# -- an existing loop with the wrappers ------------------------------------------------------------------------------


def mine(consumer: EosConsumer, partitions: list[TopicPartition]) -> None:
    consumer.commit(asynchronous=False)
    del partitions


def existing_loop() -> None:
    consumer = EosConsumer({**KAFKA, "group.id": "billing"})
    producer = EosProducer({**KAFKA, "transactional.id": "billing-0"})
    consumer.subscribe(["orders"], on_revoke=mine)
    producer.init_transactions()
    while True:
        with producer.transaction(consumer) as txn:
            assert_type(txn, Transaction)
            for message in consumer.consume(500, 0.1):
                txn.produce("invoices", value=message.value(), key=message.key())
                txn.produce("invoices", b"v", "k", headers=[("h", b"1")], partition=1, timestamp_ms=1)
        assert_type(txn.outcome, Outcome | None)
        assert_type(txn.reason, str)
        if txn.outcome is Outcome.ABORTED:
            break
    consumer.close()
    producer.close()


def lag_of(consumer: Consumer) -> int:
    return sum(each.offset for each in consumer.position(consumer.assignment()))


def send_to(producer: Producer) -> None:
    producer.produce("invoices", value=b"v")


def helpers_typed_for_the_library() -> None:
    lag_of(EosConsumer({**KAFKA, "group.id": "billing"}))
    send_to(EosProducer(KAFKA))


def one_record_of_a_unit_test() -> None:
    list(price(testing.record(topic="orders", headers=[("h", b"1")], partition=1, offset=2, timestamp_ms=3)))


def as_confluent_kafka() -> None:
    keywords: dict[str, Any] = {"group.id": "billing"}
    with EosConsumer(KAFKA, gate=GateSettings(), hook=observe, **keywords) as consumer:
        assert_type(consumer, EosConsumer)
        consumer.subscribe(["orders"], on_assign=mine, on_revoke=mine, on_lost=mine)
        message = consumer.poll(1.0)
        consumer.commit(message=message)
        assert_type(consumer.commit(offsets=[TopicPartition("orders", 0, 3)], asynchronous=False), list[Any] | None)
        assert_type(consumer.assignment(), list[TopicPartition])
        assert_type(consumer.position([TopicPartition("orders", 0)]), list[TopicPartition])
        assert_type(consumer.committed([TopicPartition("orders", 0)], 1.0), list[TopicPartition])
        consumer.seek(TopicPartition("orders", 0, 0))
        consumer.pause([TopicPartition("orders", 0)])
        consumer.resume([TopicPartition("orders", 0)])
        assert_type(consumer.memberid(), str | None)
        assert_type(consumer.counters, Counters)
        metadata = consumer.consumer_group_metadata()
    with EosProducer(KAFKA, generate_id=True) as other:
        assert_type(other, EosProducer)
    producer = EosProducer({**KAFKA}, limits=ProducerLimits(commit_timeout_s=2.0))
    producer.init_transactions(10.0)
    producer.begin_transaction()
    producer.produce("invoices", value=b"v", key=b"k", on_delivery=print)
    assert_type(producer.flush(1.0), int)
    assert_type(producer.poll(0), int)
    assert_type(len(producer), int)
    producer.send_offsets_to_transaction([TopicPartition("orders", 0, 4)], metadata, 1.0)
    producer.commit_transaction(1.0)
    producer.abort_transaction()
    assert_type(producer.transactional_id, str)


# -- errors ----------------------------------------------------------------------------------------------------------


def heed_errors(loop: ExactlyOnceLoop) -> None:
    try:
        loop.run()
    except errors.TransformError as error:
        assert_type((error.topic, error.partition, error.offset), tuple[str, int, int])
        assert_type(error.place, str | None)
    except errors.ClusterUnavailableError as error:
        assert_type(error.outcome_is_unknown, bool)
    except errors.ClusterUnfitError:
        pass
    except (errors.ProducerFencedError, errors.FatalClientError):
        raise
    except errors.EosError as error:
        print(error)


def heed_kafka_exceptions(producer: EosProducer) -> None:
    try:
        producer.commit_transaction()
    except errors.UnknownOutcomeError:
        producer.init_transactions()
    except errors.AbortableError:
        producer.abort_transaction()
    except KafkaException as error:
        print(error.args[0])


# -- the gate --------------------------------------------------------------------------------------------------------


def ask_the_gate() -> str:
    gate = CommitGate(GateSettings(scope=GateScope.PARTITION, policy=GatePolicy.HOLD, hold_limit_s=1.0))
    partition = InputPartition("orders", 0)
    now = GroupGeneration(5, "member-1")
    gate.tell(GateAssigned(frozenset({partition})))
    gate.tell(RevocationStarted(frozenset({partition})))
    gate.tell(RevocationEnded(frozenset({partition}), now, frozenset()))
    gate.tell(GateLost(frozenset({partition})))
    gate.tell(WorkEnded())
    ruling = gate.decide(CommitAttempt({partition: InputPosition(3, 9, now)}, now, held_for_s=0.2))
    assert_type(ruling, CommitRuling)
    assert_type(ruling.decision, CommitDecision)
    assert_type((ruling.rule, ruling.reason), tuple[RuleName, str])
    assert_type(gate.counters.skips_needed, int)
    if ruling.decision is CommitDecision.COMMIT:
        return "send"
    if ruling.decision is CommitDecision.SKIP:
        return "hold"
    return "abort" if ruling.decision is CommitDecision.ABORT else "serve callbacks"


def compose(consumer: EosConsumer, work: RevocationWork) -> ComposedListener:
    ours = RevocationListener(consumer.gate, work, hook=observe, counters=Counters())
    assert_type(listeners.RevocationListener, type[RevocationListener])
    return ComposedListener(ours, ApplicationCallbacks(consumer, on_revoke=mine))


def a_broker_for_tests() -> None:
    with EmbeddedKafka(version="4.3.1", properties={"group.initial.rebalance.delay.ms": "0"}) as kafka:
        assert_type(kafka.bootstrap_servers, str)


assert_type(eos_client.__all__, list[str])


# -- Spark -----------------------------------------------------------------------------------------------------------


def every_broker_for_tests() -> list[str]:
    brokers: list[KafkaBroker] = [EmbeddedKafka(), ContainerKafka()]
    for broker in brokers:
        broker.start()
        broker.restart(timeout_s=5.0)
        assert_type(broker.running, bool)
        assert_type(broker.log_tail(lines=10), str)
        broker.kill()
        broker.stop()
    with EmbeddedKafkaCluster() as cluster:
        assert_type(cluster.brokers, Mapping[int, EmbeddedKafka])
    return [broker.bootstrap_servers for broker in brokers]


def databases_for_tests() -> None:
    with EmbeddedPostgres() as postgres, EmbeddedMysql() as mysql:
        assert_type(postgres.url, str)
        assert_type(mysql.url, str)


def simulated_cluster() -> list[Any]:
    cluster = SimulatedCluster(seed=1)
    cluster.create_topic("orders", partitions=3)
    cluster.write("orders", [b"1", None], partition=1)
    cluster.refuse("EndTxn", "INVALID_TXN_STATE")
    cluster.revoke(("orders", 1))
    cluster.advance(1.0)
    cluster.give_back()
    assert_type(sum(cluster.committed("billing").values()), int)
    ExactlyOnceLoop(EosConfig(KAFKA, group_id="billing"), ["orders"], price, output_topic="invoices", clients=cluster)
    return cluster.values("invoices", read_committed=False)


# -- databases ---------------------------------------------------------------------------------------------------------


def write_rows(connection: Connection, records: list[Message]) -> None:
    for record in records:
        connection.exec_driver_sql("INSERT INTO orders VALUES (?)", (record.value(),))


def rows_of_a_database(engine: Engine) -> None:
    config = EosConfig(KAFKA, group_id="billing", on_error="dead_letter", dead_letter_topic="letters")
    with DatabaseLoop(config, ["orders"], write_rows, engine=engine, offsets_table="eos_offsets", hook=observe) as loop:
        assert_type(loop.run(until_end=True), bool)
        assert_type(loop.counters, Counters)
        assert_type(loop.gate, CommitGate)
        assert_type(loop.health(), LoopHealth)
        loop.stop("done")


def write_typed_rows(connection: Connection, records: list[Record[str, Order]]) -> None:
    for record in records:
        connection.exec_driver_sql("INSERT INTO orders VALUES (?)", (record.value(),))


def typed_rows(config: EosConfig[str, Order], engine: Engine) -> DatabaseLoop[str, Order]:
    return DatabaseLoop(config, ["orders"], write_typed_rows, engine=engine)


def rows_in_blocks(engine: Engine) -> None:
    with DatabaseConsumer({**KAFKA, "group.id": "billing"}, engine=engine, gate=GateSettings()) as consumer:
        consumer.subscribe(["orders"], on_lost=mine)
        assert_type(consumer.gate, CommitGate)
        block = consumer.database_transaction(max_records=100, timeout_s=0.5)
        with block as (connection, records):
            write_rows(connection, records)
        assert_type(block.outcome, Outcome | None)
        assert_type(block.reason, str)


def outbox(engine: Engine) -> None:
    table = outbox_table("outbox", MetaData())
    assert_type(table, Table)
    create_outbox(engine, table)
    with engine.begin() as connection:
        write_outbox(connection, table, [OutputRecord("invoices", key=b"C-1", value=b"paid")])
    config = EosConfig(KAFKA, group_id="relay")
    relay = OutboxRelay(engine, table, config, buckets=4, default_topic="invoices", keep=True, hook=observe)
    with relay:
        assert_type(relay.run(until_end=True), bool)
        assert_type(relay.counters, Counters)
        assert_type(relay.health(), LoopHealth)
        relay.stop()


def executor_step(step: str, slot: int, batch_id: int) -> None:
    del step, slot, batch_id


def driver_step(step: str, batch_id: int) -> None:
    del step, batch_id


def spark_sink(stream: Any) -> None:
    sink = EosKafkaSink("localhost:9092", "invoices", sink_id="invoices")
    stream.writeStream.foreachBatch(sink).option("checkpointLocation", "/checkpoints/invoices").start()
    progress = sink.progress()
    assert_type(progress, SinkProgress | None)
    if progress is not None:
        assert_type(progress.last, SparkBatchWritten | None)
        assert_type(progress.rows, int)
        assert_type(progress.as_dict(), dict[str, Any])
    assert_type(sink.close(), None)


def spark_database_sink(stream: Any, make_engine: Callable[[], Engine]) -> None:
    sink = EosDatabaseSink("postgresql+psycopg://billing@localhost/billing", "bookings", sink_id="bookings")
    stream.writeStream.foreachBatch(sink).option("checkpointLocation", "/checkpoints/bookings").start()
    assert_type(sink.progress(), SinkProgress | None)
    assert_type(sink.check(), None)
    assert_type(sink.close(), None)
    EosDatabaseSink(
        make_engine,
        "billing.bookings",
        sink_id="bookings",
        slots=8,
        key=["customer", "region"],
        order_by="offset",
        use_copy=False,
        stable_input="stage",
        stage_dir="/stage",
        adopt_ledger="0123456789ab",
        accept_batch="0123456789ab",
        ledger_table="billing.eos_batches",
        query_id="bookings-v1",
        timeout_s=10.0,
        hook=observe,
        on_step=executor_step,
        on_driver_step=driver_step,
    )


def spark_sink_with_every_option() -> EosKafkaSink:
    return EosKafkaSink(
        "localhost:9092",
        "invoices",
        sink_id="invoices",
        slots=8,
        config={"compression.type": "lz4", "transaction.timeout.ms": 120_000},
        stable_input="stage",
        stage_dir="/stage",
        order_by=["partition", "offset"],
        adopt_ledger="0123456789ab",
        ledger_topic="eos-ledger",
        query_id="invoices-v1",
        start_timeout_s=20.0,
        commit_timeout_s=10,
        sibling_timeout_s=5.0,
        kept_producers=8,
        hook=observe,
        on_step=executor_step,
        on_driver_step=driver_step,
    )
