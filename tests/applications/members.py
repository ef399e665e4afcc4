"""Runs the application of a program on a client library, simulated or real: one member is one process after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from eos_client import EosConsumer, EosProducer, ExactlyOnceLoop, Outcome, OutputRecord
from eos_client.core.commit_gate import GatePolicy, GateScope, GateSettings
from eos_client.core.model import ProducerLimits
from eos_client.errors import ClusterUnavailableError, EosError, OutputRefusedError
from eos_client.observe import (
    OutcomeResolved,
    PartitionsLost,
    RecordDeadLettered,
    RecordSkipped,
    TransactionCommitted,
)
from tests.applications.block_outcomes import BROKEN_OFF, BlockOutcomes
from tests.applications.callbacks import ScriptedCallbacks
from tests.applications.client_settings import ClientSettings
from tests.applications.environment import UNKNOWN, Names
from tests.applications.exceptions import Hang, Interrupt, Killed, Oops, Restart
from tests.applications.program import Act, Program, Setting, Turn
from tests.applications.transform import BADLY_TIMED, BROKER_LARGE, REFUSED_LARGE, Transform

CALM_WAIT_S = 0.1
COMMITS_AFTER_S = 0.5
GIVEN_BACK = 2
"""So many records before the last one come again after an exception."""
SHORT_TURN_S = 0.03
ACCEPTED = "accepted"
NOT_ENDED = "not ended yet"
MISUSES = frozenset({"nested", "commit_inside", "assign_by_hand", "second_transaction"})
_REFUSALS = (KafkaException, OutputRefusedError, TypeError, ValueError, OverflowError)


class ApplicationMember:
    """One instance of the application."""

    def __init__(self, environment: Any, index: int) -> None:
        self.environment, self.index = environment, index
        self.names: Names = environment.names
        self.program: Program = environment.program
        self.setting: Setting = self.program.setting
        self.background: Any = None
        self.name = f"member-{index}"
        self.process = 0
        self._callbacks = ScriptedCallbacks(self)
        self._clients = ClientSettings(self.program, self.names, index, self._callbacks)
        self._record_transform = Transform(environment)
        self.corrected: set[tuple[int, int]] = environment.corrected
        self.loop: ExactlyOnceLoop | None = None
        self.consumer: Any = None
        self.producer: Any = None
        self.open: list[int] = []
        self.first_in_block: dict[int, int] = {}
        self.gave_all_back = False
        self.unwritten: list[tuple[int, Any]] = []
        self._outcomes = BlockOutcomes(environment)
        self.handed_over: dict[int, int] = {}
        self.killed = False
        self.last: Any = None
        self.swallowed = ""
        self.closed_one = ""

    # -- one process after another -------------------------------------------------------------------------------

    def live(self) -> None:
        """Run processes until the environment is over; a supervisor starts the next one."""
        while not self.environment.over():
            self.process = self.environment.new_process()
            self.open, self.killed, self.last, self.closed_one = [], False, None, ""
            self.handed_over, self._outcomes = {}, BlockOutcomes(self.environment)
            try:
                self._one_process()
            except (Oops, Restart) as error:
                self.environment.count(f"process ended by {type(error).__name__}")
            except Interrupt:
                self.environment.count("process ended by a signal")
                self.environment.exits(self)
            except Killed:
                self.environment.count("process killed")
            except Hang:
                raise
            except EosError as error:
                if not self.killed:
                    self.environment.ended(error, self.environment.library.clock())
                    self.environment.exits(self)
            except BaseException as error:  # noqa: BLE001  # whatever it is, nobody documents it
                if not self.killed:
                    self.environment.unnamed(error)
            finally:
                self._bury()
            self.environment.rest(0.2)

    def _one_process(self) -> None:
        if self.program.style == "loop":
            self._run_loop()
            return
        try:
            self._build()
            if self.program.commits_first and not self.environment.calm:
                self._commit_first()
            while not self.environment.over():
                for turn in self.program.turns:
                    self._one_turn(turn)
                    if self.environment.over():
                        break
        finally:
            self._close()

    def _close(self) -> None:
        for client in (self.consumer, self.producer):
            if client is not None:
                try:
                    client.close()
                except (Oops, EosError):  # a callback that raises, or the cluster
                    self.environment.count("close raised")

    def _bury(self) -> None:
        """Let go of what an ended process still holds."""
        for client in (self.producer, self.loop and self.loop._producer):
            if client is not None:
                with suppress(Oops, Interrupt, *((RuntimeError,) if self.killed else ())):
                    client.close()
        if not self.killed:
            self._outcomes.producer_closed()
        self.consumer = self.producer = self.loop = None

    # -- the loop ------------------------------------------------------------------------------------------------

    def _run_loop(self) -> None:
        config = self._clients.loop(self.environment.bootstrap)
        self.loop = ExactlyOnceLoop(
            config,
            self._clients.topics,
            **{"transform_batch": self._transform_batch} if self.program.batches else {"transform": self._transform},
            output_topic=self.names.sink,
            hook=self._hook,
            clients=self.environment.library,
        )
        with self.loop:
            self.loop.run()

    def _transform_batch(self, records: list[Any]) -> Iterator[Any]:
        for record in records:
            yield from self._outputs_of(record)

    def _transform(self, record: Any) -> Any:
        """Yield the outputs of every other record, and return those of the others, one alone as it is."""
        outputs = self._outputs_of(record)
        if record.offset() % 2:
            return outputs
        made = [*outputs]
        return made[0] if len(made) == 1 else made

    def _outputs_of(self, record: Any) -> Iterator[Any]:
        self.environment.point(self)
        place = (record.partition(), record.offset())
        attempt = self.environment.took(self, place)
        for topic, value, options in self._record_transform.outputs(self, place, attempt):
            if topic is None or (self.program.as_bytes and not options):
                yield value
            else:
                yield OutputRecord(topic, value=value, key=b"key", **options)

    def _hook(self, event: Any) -> None:
        heard = self.environment.oracle.events
        self.environment.count("committed" if isinstance(event, TransactionCommitted) else type(event).__name__)
        if isinstance(event, TransactionCommitted):
            heard.outputs.append(event.records_out)
        elif isinstance(event, RecordDeadLettered):
            heard.letters.append((event.partition, event.offset))
        elif isinstance(event, RecordSkipped):
            heard.skipped.append((event.partition, event.offset))
        elif isinstance(event, OutcomeResolved) and event.outcome == "unknown":
            self.environment.count(UNKNOWN)
        elif isinstance(event, PartitionsLost):  # no callback tells of those that the member keeps all the same
            self._forget({partition.partition for partition in event.partitions})
        self._callbacks.called("hook")

    # -- blocks and plain use ------------------------------------------------------------------------------------

    def _build(self) -> None:
        self._build_consumer()
        if self.program.style == "block":
            self._build_producer()

    def _build_consumer(self) -> None:
        s, library = self.setting, self.environment.library
        gate = GateSettings(scope=GateScope(s.scope), policy=GatePolicy(s.policy), hold_limit_s=s.hold_limit_s)
        common: dict[str, Any] = {"hook": self._hook, "clock": library.clock}
        servers = {"bootstrap.servers": self.environment.bootstrap}
        self.consumer = EosConsumer(
            {**servers, **self._clients.consumer(), "group.id": self.names.group},
            gate=gate,
            factory=library.consumer,
            **common,
        )
        self.consumer.subscribe(
            self._clients.topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _build_producer(self) -> None:
        s, library = self.setting, self.environment.library
        self.producer = EosProducer(
            {
                "bootstrap.servers": self.environment.bootstrap,
                **self._clients.producer(),
                "transactional.id": self._clients.transactional_id,
            },
            limits=ProducerLimits(s.commit_timeout_s, 10.0, s.recovery_timeout_s),
            generate_id=s.generated_id,
            factory=library.producer,
            hook=self._hook,
            clock=library.clock,
        )
        self.producer.init_transactions()

    def _commit_first(self) -> None:
        """Commit plainly where the first record is; no block takes that consumer then, and another one goes on."""
        message = self.consumer.poll(COMMITS_AFTER_S)
        if message is not None and message.error() is None:
            place = TopicPartition(self.names.source, message.partition(), message.offset())
            try:
                self.consumer.commit(offsets=[place], asynchronous=self.program.commits_first == "commit_async")
            except KafkaException as error:
                self.environment.count(f"commit raised {type(error).__name__}")
        self.environment.watch()
        if self.consumer.adapter.plain.uses:
            self._refused("a block after commit()", lambda: self.producer.transaction(self.consumer))
        self.consumer.close()
        self._build_consumer()

    def _one_turn(self, turn: Turn) -> None:
        self.environment.point(self)
        began_at = self.environment.library.clock()
        if self.environment.calm:
            self.consumer.resume(self.consumer.assignment())
        try:
            self._acts(turn)
        except (Oops, Interrupt) as error:
            self.environment.count(f"turn ended by {type(error).__name__}")
            if self.program.gives_back:
                self._seek_back(GIVEN_BACK)
            if self.program.replaces and not self.closed_one:
                self._replace_producer()
        except ClusterUnavailableError:
            if not self.program.goes_on:
                raise
            self.environment.count("went on after ClusterUnavailableError")
        if self.closed_one:
            self._replace_closed()
        if self.environment.library.clock() - began_at < SHORT_TURN_S:
            self.environment.rest(SHORT_TURN_S)

    def _replace_closed(self) -> None:
        """Go on after a client was closed: with a new producer, if that was closed and is to be replaced."""
        if self.closed_one != "producer" or not self.program.replaces:
            raise Restart
        self._replace_producer()

    def _replace_producer(self) -> None:
        self.environment.count("replaced its producer")
        self.producer.close()
        self._outcomes.producer_closed()
        self.closed_one = ""
        self._build_producer()

    def _acts(self, turn: Turn) -> None:
        try:
            if self.program.style == "block":
                self._block(turn)
            else:
                for act in turn.acts:
                    self._act(None, act, turn)
        except RuntimeError:  # what confluent_kafka says of a closed client
            if not self.closed_one:
                raise

    def _block(self, turn: Turn) -> None:
        self.open, self.unwritten, self.first_in_block, self.gave_all_back = [], [], {}, False
        self.swallowed = ""
        txn = self.producer.transaction(self.consumer)
        strike = self.environment.strike_at_end(self)
        try:
            with txn:
                self._outcomes.hear_late()
                for act in turn.acts:
                    self._act(txn, act, turn)
                for attempt, place in self.unwritten:
                    self._write(txn, attempt, place, turn)
                strike.arm()
        except RuntimeError as error:  # of the block's own calls, never from outside
            if txn.outcome is None and txn.reason.startswith(BROKEN_OFF) and not (strike.struck or self.killed):
                self.environment.oracle.note("UNTOLD", f"a block has ended by {error!r}, and says that {txn.reason}")
            raise
        finally:
            strike.disarm()
            outcome = txn.outcome.value if txn.outcome is not None else ""
            self.environment.count(outcome or "no outcome")
            self.environment.watch()
            if not outcome and txn.reason == NOT_ENDED and not (strike.struck or self.killed):
                self.environment.oracle.note("UNTOLD", f"a block has ended, and says that it is {NOT_ENDED}")
            self._ended(txn, outcome)
        self._after_block(txn, turn)

    def _ended(self, txn: Any, outcome: str) -> None:
        """Take note of what the block says of its records; without an outcome nothing is said yet."""
        self._outcomes.ended(txn, outcome, self.open, self.swallowed)
        if outcome not in ("committed", "skipped"):
            self.last = None  # its offset must not be committed without its outputs
        self.open = []

    def _after_block(self, txn: Any, turn: Turn) -> None:
        if any(act.name == "produce_after" for act in turn.acts) and not self.environment.calm:
            self._refused("produce after the block", lambda: txn.produce(self.names.sink, b"bad"))
        # In the end neither any more: a pause in time undoes each look-up of a position that retention has deleted.
        if self.closed_one or self.environment.calm:
            return
        if turn.then and txn.outcome is Outcome.COMMITTED:
            self._commit_after_block(turn)
        if turn.keeps_alive:
            self._keep_alive()

    def _keep_alive(self) -> None:
        """Poll with everything paused; what comes of a partition that is new is left for the next block."""
        assignments = self._callbacks.counts["on_assign"]
        self.consumer.pause(self.consumer.assignment())
        message = self.consumer.poll(0.05)
        self.consumer.resume(self.consumer.assignment())
        if message is not None and message.error() is None:
            if assignments == self._callbacks.counts["on_assign"]:
                self.environment.oracle.note(
                    "PAUSED", f"{message.partition()}:{message.offset()} came while it was paused"
                )
            try:
                self.consumer.seek(TopicPartition(self.names.source, message.partition(), message.offset()))
            except KafkaException:
                self.environment.count("seek refused")

    def _commit_after_block(self, turn: Turn) -> None:
        """Try to commit what the block has committed already: refused, also once the producer is closed."""
        message, asynchronous = self.last, turn.then.endswith("async")
        if message is None or not turn.then.startswith("commit_message"):
            message, asynchronous = None, False  # where it may, an asynchronous one with nothing to commit is silent
        if turn.reopens:
            self.producer.close()
        self._refused("commit beside blocks", lambda: self.consumer.commit(message, asynchronous=asynchronous))
        if turn.reopens:
            self._build_producer()

    def _act(self, txn: Any, act: Act, turn: Turn) -> None:
        self.environment.point(self)
        calm = self.environment.calm
        if act.name in ("consume", "poll"):
            if not self.gave_all_back:
                self._consume(txn, act, turn)
        elif act.name == "resume" or (calm and act.name == "pause"):
            self.consumer.resume(self.consumer.assignment())
        elif act.name.startswith("commit") and txn is None:
            self._commit(act.name)
        elif act.name in MISUSES and not calm:
            self._misuse(txn, act.name)
        elif not calm:
            self._unusual(act, turn)

    def _consume(self, txn: Any, act: Act, turn: Turn) -> None:
        seconds = max(act.seconds, CALM_WAIT_S) if self.environment.calm else act.seconds
        try:
            if act.name == "consume":
                messages = self.consumer.consume(act.count, seconds)
            else:
                messages = [message for message in [self.consumer.poll(seconds)] if message is not None]
        except (Oops, Interrupt, *self.environment.named_errors) as error:
            if txn is None or not turn.swallows:
                raise
            self._swallow(act.name, error)
            return
        for message in messages:
            self._take(txn, message, turn)

    def _unusual(self, act: Act, turn: Turn) -> None:
        if act.name == "sleep":
            self.environment.sleep(self, act.seconds)
        elif act.name == "stall":
            self.environment.stall(self, act.seconds)
        elif act.name == "pause":
            self.consumer.pause([p for p in self.consumer.assignment() if p.partition == act.count])
        elif act.name == "raise":
            raise Oops("in the block")
        elif act.name == "restart":
            raise Restart
        elif act.name == "seek_back":
            self._give_back(act.count, turn)
        elif act.name == "close_producer":
            self.closed_one = self.closed_one or "producer"
            self.producer.close()
        elif act.name == "close_consumer":
            self.closed_one = "consumer"
            self.consumer.close()

    def _take(self, txn: Any, message: Any, turn: Turn) -> None:
        if message.error() is not None:
            if txn is None and message.error().fatal():
                raise Restart
            if txn is not None:
                self.environment.oracle.note("EVENT", f"{message.error().name()} came out of a block as a record")
            return
        place = (message.partition(), message.offset())
        attempt = self.environment.took(self, place)
        self.last = message
        if txn is None:
            self.handed_over[place[0]] = place[1] + 1
            if self.setting.stores == "messages":
                self.consumer.store_offsets(message=message)
            return
        self.open.append(attempt)
        self.first_in_block.setdefault(*place)
        if turn.late:
            self.unwritten.append((attempt, place))
        else:
            self._write(txn, attempt, place, turn)

    def _write(self, txn: Any, attempt: int, place: tuple[int, int], turn: Turn) -> None:
        try:
            for topic, value, options in self._record_transform.outputs(self, place, attempt):
                self._produce(txn, topic, value, options, attempt, turn)
        except Oops:
            self.corrected.add(place)
            raise

    def _produce(
        self, txn: Any, topic: str | None, value: Any, options: dict[str, Any], attempt: int, turn: Turn
    ) -> None:
        try:
            txn.produce(topic or self.names.sink, value, b"key", **options)
        except (Oops, Interrupt, *self.environment.named_errors) as error:
            if not turn.swallows:
                raise
            self._swallow("produce", error)
        except _REFUSALS as error:
            self._answered(attempt, value, f"refused {type(error).__name__}")
            self.environment.count(f"refused {type(error).__name__}")
        else:
            self._answered(attempt, value, ACCEPTED)
            if value != b"bad":
                refusable = (BADLY_TIMED, BROKER_LARGE, REFUSED_LARGE)
                self.environment.oracle.attempts[attempt].parts += value not in refusable
        if value in (BADLY_TIMED, BROKER_LARGE):
            self.corrected.add(self.environment.oracle.attempts[attempt].place)

    def _swallow(self, call: str, error: BaseException) -> None:
        self.swallowed = self.swallowed or f"its {call}() had raised {type(error).__name__}"
        self.environment.count(f"swallowed {type(error).__name__}")

    def _answered(self, attempt: int, value: Any, answer: str) -> None:
        partition, offset = self.environment.oracle.attempts[attempt].place
        part = f"part {value[-1:]!r}" if isinstance(value, bytes) and b"|" in value else "what is refusable"
        self.environment.answer(f"{part} of {partition}:{offset}", answer)

    def _commit(self, call: str) -> None:
        asynchronous = call.endswith("async") and not self.environment.calm
        places = [TopicPartition(self.names.source, *each) for each in sorted(self.handed_over.items())]
        try:
            if self.setting.stores == "offsets" and places:
                self.consumer.store_offsets(offsets=places)
            if call.startswith("commit_message") and not self.environment.calm:
                if self.last is not None:
                    self.consumer.commit(message=self.last, asynchronous=asynchronous)
            elif call.startswith("commit_offsets") and not self.environment.calm:
                if places:
                    self.consumer.commit(offsets=places, asynchronous=asynchronous)
            else:
                self.consumer.commit(asynchronous=asynchronous)
        except KafkaException as error:
            self.last = None
            self.environment.count(f"commit raised {type(error).__name__}")
            if error.args[0].code() == KafkaError._NO_OFFSET:
                self.environment.nothing_to_commit(self.handed_over)
        self.environment.count("plain commit")
        self.environment.watch()

    def _give_back(self, count: int, turn: Turn) -> None:
        """Seek back; in a block to its own records alone, of which it writes nothing."""
        if self.program.style != "block":
            self._seek_back(count)
            return
        if self.last is None or self.last.partition() not in self.first_in_block:
            return
        partition, last = self.last.partition(), self.last.offset()
        first = self.first_in_block[partition]
        if turn.late:
            first = max(first, last - count)
            self.unwritten = [each for each in self.unwritten if each[1][0] != partition or each[1][1] < first]
        elif len(self.first_in_block) > 1 or first < self.environment.first(partition):
            return
        else:
            self.gave_all_back = True  # with their outputs, so nothing more is taken in this block
        self._seek_back(last - first)
        self.last = None  # from there on, a seek would go forward

    def _seek_back(self, count: int) -> None:
        message = self.last
        if message is None or message.partition() not in {p.partition for p in self.consumer.assignment()}:
            return
        place = (message.partition(), max(self.environment.first(message.partition()), message.offset() - count))
        try:
            self.consumer.seek(TopicPartition(self.names.source, *place))
        except KafkaException:
            self.environment.count("seek refused")
        else:
            self.handed_over.pop(place[0], None)
            self.environment.oracle.sought(self.process, place)

    def _misuse(self, txn: Any, name: str) -> None:
        if name == "nested":
            self._refused(name, lambda: self.producer.transaction(self.consumer).__enter__())
        elif name == "commit_inside" and self.open:
            self._refused(name, lambda: self.consumer.commit(asynchronous=False))
        elif name == "assign_by_hand":
            self._refused(name, lambda: self.consumer.assign([TopicPartition(self.names.source, 0)]))
        elif name == "second_transaction" and self.open:
            self._refused(name, self.producer.begin_transaction)

    def _refused(self, name: str, act: Callable[[], Any]) -> None:
        try:
            act()
        except (KafkaException, EosError) as error:
            self.environment.answer(name, f"{name}: {type(error).__name__}")
            self.environment.count(f"{name}: {type(error).__name__}")
        else:
            self.environment.oracle.note("MISUSE", f"{name} was accepted")
            raise Restart

    # -- callbacks -----------------------------------------------------------------------------------------------

    def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        self._callbacks.called("on_assign", consumer, partitions)

    def _on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        self._left(partitions)
        self._callbacks.called("on_revoke", consumer, partitions)

    def _on_lost(self, consumer: Any, partitions: list[Any]) -> None:
        self._left(partitions)
        self._callbacks.called("on_lost", consumer, partitions)

    def _left(self, partitions: list[Any]) -> None:
        self._outcomes.forget_held()  # the callback may have ended what earlier blocks had skipped
        self._forget({each.partition for each in partitions})

    def _forget(self, partitions: set[int]) -> None:
        """Commit nothing more of ``partitions`` that was handed over before they left."""
        for partition in partitions:
            self.handed_over.pop(partition, None)
        if self.last is not None and self.last.partition() in partitions:
            self.last = None
