"""Any number of batches in flight, a network that loses, doubles and reorders: the log has each once, in order."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from eos_client.testing.simulator.brokers.idempotent_sender import IdempotentSender, SentBatch
from eos_client.testing.simulator.brokers.model import BrokerError, NewRecord, ProducerIdentity, RecordBatch
from eos_client.testing.simulator.brokers.partition_log import PartitionLog
from eos_client.testing.simulator.brokers.producer_state import SEQUENCES
from eos_client.testing.simulator.brokers.settings import BrokerSettings, ProducerStateKind

ANNA = ProducerIdentity(7, 0)
DUPLICATE, OUT_OF_ORDER = "DUPLICATE_SEQUENCE_NUMBER", "OUT_OF_ORDER_SEQUENCE_NUMBER"


def records(first, count=1):
    return [NewRecord(b"%d" % number) for number in range(first, first + count)]


def log_with(window, kind=ProducerStateKind.LATEST_SEQUENCE):
    return PartitionLog(BrokerSettings(producer_state=kind, max_in_flight_sequence_number_per_connection=window))


def log_where_last_was(sequence, window):
    log = log_with(window)
    last = RecordBatch(tuple(records(0)), ANNA.producer_id, ANNA.producer_epoch, sequence)
    log._producers.record_append(last, 0, 0.0)
    return log


def sender_of(*batches, window=100, first_sequence=0):
    sender = IdempotentSender(ANNA, first_sequence=first_sequence)
    sender.learn_window(window)
    first = 0
    for count in batches:
        sender.add(records(first, count))
        first += count
    return sender


def serve(log, sent):
    """What the broker answers: an offset, or an error's name."""
    try:
        return log.append(sent.batch, 0.0)
    except BrokerError as refusal:
        return refusal.code


def tell(sender, sent, answer):
    if isinstance(answer, str):
        sender.refused(sent, answer)
    else:
        sender.acknowledged(sent, answer)


def values(log):
    return [int(record.value) for record in log.records]


# -- one rule at a time ----------------------------------------------------------------------------------------------


def test_nothing_is_sent_before_the_window_is_known():
    """P5: the client learns the window from the broker at start."""
    sender = IdempotentSender(ANNA)
    sender.add(records(0))
    assert sender.take() is None
    sender.learn_window(log_with(3).max_in_flight_sequence_number_per_connection)
    assert sender.take() is not None


def test_a_sender_throttles_at_a_full_window_until_the_oldest_batch_is_acknowledged():
    """P5: the client throttles when that many sequences are in flight."""
    sender = sender_of(2, 2, 1, 1, window=5)
    first, second, third = sender.take(), sender.take(), sender.take()
    assert sender.sequences_in_flight == 5
    assert sender.take() is None
    sender.acknowledged(second, 2)
    sender.acknowledged(third, 4)
    assert sender.take() is None
    sender.acknowledged(first, 0)
    assert sender.take().batch.base_sequence == 5


def test_a_batch_larger_than_the_window_is_an_error():
    with pytest.raises(ValueError, match="6 records cannot pass the broker's window of 5"):
        sender_of(6, window=5).take()


def test_an_empty_batch_is_an_error():
    with pytest.raises(ValueError, match="needs a record"):
        sender_of(0)


def test_more_than_five_batches_may_be_in_flight():
    """P5: the limit of 5 requests in flight is not needed."""
    log, sender = log_with(1000), sender_of(*[1] * 500, window=1000)
    sent = [sender.take() for _ in range(500)]
    assert sender.batches_in_flight == 500
    for each in sent:
        serve(log, each)
    for each in sent:
        tell(sender, each, serve(log, each))
    assert sender.is_idle
    assert values(log) == list(range(500))


def test_a_duplicate_is_dropped_and_the_next_batch_goes_out():
    """P5: the client drops a duplicate and moves on."""
    sender = sender_of(2, 1, window=2)
    sender.refused(sender.take(), DUPLICATE)
    assert [(len(each.records), each.offset) for each in sender.delivered] == [(2, None)]
    assert sender.take().batch.base_sequence == 2


def test_a_batch_out_of_order_is_repeated():
    """P5: the client retries on OUT_OF_ORDER_SEQUENCE."""
    sender = sender_of(1, 1)
    _, second = sender.take(), sender.take()
    sender.refused(second, OUT_OF_ORDER)
    again = sender.take()
    assert (again.batch, again.attempt) == (second.batch, 2)
    assert sender.failure is None


def test_an_unanswered_batch_is_repeated_with_its_number_before_new_ones():
    sender = sender_of(1, 1, 1)
    first, _ = sender.take(), sender.take()
    sender.unanswered(first)
    assert [sender.take().batch.base_sequence for _ in range(2)] == [0, 2]


def test_the_oldest_repetition_goes_first():
    sender = sender_of(1, 1, 1)
    for sent in reversed([sender.take() for _ in range(3)]):
        sender.unanswered(sent)
    assert [sender.take().batch.base_sequence for _ in range(3)] == [0, 1, 2]


def test_a_batch_is_not_repeated_while_its_repetition_is_in_flight():
    sender = sender_of(1)
    sent = sender.take()
    sender.unanswered(sent)
    assert sender.take().attempt == 2
    sender.unanswered(sent)
    assert sender.take() is None


def test_giving_up_twice_repeats_once():
    sender = sender_of(1, 1)
    sent, _ = sender.take(), sender.take()
    sender.unanswered(sent)
    sender.unanswered(sent)
    assert sender.take().batch.base_sequence == 0
    assert sender.take() is None


def test_a_late_acknowledgement_saves_the_repetition():
    sender = sender_of(1, 1, 1)
    sent, _ = sender.take(), sender.take()
    sender.unanswered(sent)
    sender.acknowledged(sent, 0)
    assert sender.take().batch.base_sequence == 2


def test_a_second_answer_changes_nothing():
    sender = sender_of(1, 1)
    sent = sender.take()
    for answer in (3, OUT_OF_ORDER, DUPLICATE, 3):
        tell(sender, sent, answer)
    assert [each.offset for each in sender.delivered] == [3]
    assert sender.failure is None


def test_another_error_stops_it():
    sender = sender_of(1, 1)
    sender.refused(sender.take(), "INVALID_PRODUCER_EPOCH")
    assert sender.failure == "INVALID_PRODUCER_EPOCH"
    assert sender.take() is None


def test_the_first_in_line_refused_as_out_of_order_means_that_the_broker_has_lost_its_state():
    log, sender = log_with(100), sender_of(1, 1)
    tell(sender, *_sent_and_served(sender, log))
    log.expire_producers(10.0)
    tell(sender, *_sent_and_served(sender, log))
    assert sender.failure == OUT_OF_ORDER
    assert sender.take() is None


def test_an_early_refusal_that_comes_late_is_no_lost_state():
    log, sender = log_with(100), sender_of(1, 1)
    first, second = sender.take(), sender.take()
    refused = serve(log, second)
    tell(sender, first, serve(log, first))
    tell(sender, second, refused)
    assert sender.failure is None
    tell(sender, *_sent_and_served(sender, log))
    assert values(log) == [0, 1]


def test_a_producer_begins_again_at_0_with_a_newer_epoch():
    """P3: a non-transactional idempotent producer bumps its epoch locally and re-numbers."""
    log, sender = log_with(100), sender_of(2, 1, 1, 1)
    tell(sender, *_sent_and_served(sender, log))
    log.expire_producers(10.0)
    second, third = sender.take(), sender.take()
    tell(sender, second, serve(log, second))
    sender.renumber(1)
    tell(sender, third, 99)
    while not sender.is_idle:
        tell(sender, *_sent_and_served(sender, log))
    assert values(log) == [0, 1, 2, 3, 4]
    assert [(record.producer_epoch, record.sequence) for record in log.records[2:]] == [(1, 0), (1, 1), (1, 2)]


def test_an_answer_to_an_old_number_is_not_taken_for_the_new_one():
    sender = sender_of(2, 1, 1, 1)
    sender.acknowledged(sender.take(), 0)
    old = sender.take()
    sender.refused(old, OUT_OF_ORDER)
    sender.renumber(1)
    assert [sender.take().batch.base_sequence for _ in range(3)] == [0, 1, old.batch.base_sequence]
    sender.acknowledged(old, 99)
    assert sender.batches_in_flight == 3


def test_sequences_in_flight_are_counted_across_the_wrap():
    """P5: all arithmetic modulo 2^31 (the client's)."""
    sender = sender_of(2, 2, 2, window=5, first_sequence=SEQUENCES - 3)
    assert [sender.take().batch.base_sequence for _ in range(2)] == [SEQUENCES - 3, SEQUENCES - 1]
    assert (sender.sequences_in_flight, sender.take()) == (4, None)


def _sent_and_served(sender, log):
    sent = sender.take()
    return sent, serve(log, sent)


# -- any network -----------------------------------------------------------------------------------------------------


class AnyNetwork(RuleBasedStateMachine):
    """Requests and answers are delivered in any order, twice, late, or never; the log must not notice."""

    @initialize(
        window=st.integers(4, 40), begins_at=st.sampled_from([0, 1, SEQUENCES - 1, SEQUENCES - 5, SEQUENCES - 30])
    )
    def start(self, window, begins_at):
        self.window = window
        self.log = log_where_last_was(begins_at - 1, window) if begins_at else log_with(window)
        self.sender = sender_of(window=window, first_sequence=begins_at)
        self.offered = 0
        self.requests, self.answers, self.awaited = [], [], []
        self.break_a_rule()

    def break_a_rule(self):
        """Nothing is broken here."""

    @rule(count=st.integers(1, 4), batches=st.integers(1, 4))
    def offer(self, count, batches):
        for _ in range(batches):
            self.sender.add(records(self.offered, count))
            self.offered += count

    @rule(batches=st.integers(1, 12))
    def send(self, batches):
        for sent in iter(self.sender.take, None):
            self.requests.append(sent)
            self.awaited.append(sent)
            batches -= 1
            if not batches:
                return

    @precondition(lambda self: self.requests)
    @rule(which=st.integers(0, 50), copy=st.booleans())
    def serve_one(self, which, copy):
        sent = self._pick(self.requests, which, copy=copy)
        self.answers.append((sent, serve(self.log, sent)))

    @precondition(lambda self: self.requests)
    @rule()
    def serve_all_backwards(self):
        for sent in reversed(self.requests):
            self.answers.append((sent, serve(self.log, sent)))
        self.requests.clear()

    @precondition(lambda self: self.requests)
    @rule(which=st.integers(0, 50))
    def lose_a_request(self, which):
        self._pick(self.requests, which)

    @precondition(lambda self: self.answers)
    @rule(which=st.integers(0, 50), copy=st.booleans())
    def answer_one(self, which, copy):
        tell(self.sender, *self._pick(self.answers, which, copy=copy))

    @precondition(lambda self: self.answers)
    @rule(which=st.integers(0, 50))
    def lose_an_answer(self, which):
        self._pick(self.answers, which)

    @precondition(lambda self: self.awaited)
    @rule(which=st.integers(0, 50))
    def time_out(self, which):
        self.sender.unanswered(self._pick(self.awaited, which))

    @invariant()
    def the_log_holds_what_was_offered_in_its_order(self):
        assert values(self.log) == list(range(len(self.log.records)))

    @invariant()
    def what_is_delivered_is_in_the_log_where_it_was_said_to_be(self):
        for each in self.sender.delivered:
            at = int(each.records[0].value)
            assert at + len(each.records) <= len(self.log.records)
            assert each.offset in {None, at}

    @invariant()
    def the_window_is_kept(self):
        assert self.sender.sequences_in_flight <= self.window
        assert self.sender.failure is None

    def teardown(self):
        """Once the network is fair, all arrives."""
        for sent in self.awaited:
            self.sender.unanswered(sent)
        for _ in range(10 * self.offered + 10):
            sent = self.sender.take()
            if sent is None:
                break
            tell(self.sender, sent, serve(self.log, sent))
        assert self.sender.is_idle
        assert values(self.log) == list(range(self.offered))

    def _pick(self, things, which, *, copy=False):
        at = which % len(things)
        return things[at] if copy else things.pop(at)


def play(machine, phases=(Phase.generate, Phase.shrink)):
    options = settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=120,
        stateful_step_count=60,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=options)


def test_nothing_is_lost_doubled_or_reordered_whatever_the_network_does():
    """P5: any number of in-flight batches under loss, duplication and reordering: never lost, doubled or reordered."""
    play(AnyNetwork)


def does_not_throttle(world):
    world.sender.learn_window(10 * world.window)
    world.window *= 10  # so that the throttle itself is not what is noticed


def begins_anywhere(world):
    world.log._producers._begins_at_0 = False


def takes_a_gap_for_a_duplicate(world):
    refused = world.sender.refused
    world.sender.refused = lambda sent, code: refused(sent, DUPLICATE if code == OUT_OF_ORDER else code)


def repeats_what_is_written_as_if_it_were_new(world):
    world.log._producers._window = 0


def keeps_five_batches(world):
    world.log = log_with(world.window, ProducerStateKind.FIVE_BATCHES)


@pytest.mark.parametrize(
    "breaks",
    [
        does_not_throttle,
        begins_anywhere,
        takes_a_gap_for_a_duplicate,
        repeats_what_is_written_as_if_it_were_new,
        keeps_five_batches,
    ],
)
def test_a_sender_or_broker_without_one_of_the_rules_fails_on_some_network(breaks):
    class Broken(AnyNetwork):
        break_a_rule = breaks

    with pytest.raises(AssertionError):
        play(Broken, phases=(Phase.generate,))


# -- the same in bulk, and what goes wrong without the rules ---------------------------------------------------------


def storm(log, sender, random, rounds_max):
    """Lose, double, delay and reorder round by round, and return the most batches that were in flight at once."""
    most = 0
    late: list[SentBatch] = []
    for _ in range(rounds_max):
        sent = [*iter(sender.take, None)]
        most = max(most, sender.batches_in_flight)
        if sender.is_idle or sender.failure:
            break
        requests = [*late, *[each for each in sent for _ in range(random.choices((0, 1, 2), (2, 95, 3))[0])]]
        late = [requests.pop(random.randrange(len(requests))) for _ in range(len(requests) // 50)]
        requests = [each for _, each in sorted(enumerate(requests), key=lambda at: at[0] + random.uniform(0, 1.1))]
        answers = [(each, serve(log, each)) for each in requests]
        random.shuffle(answers)
        for each, answer in answers:
            if random.random() < 0.7:
                tell(sender, each, answer)
        for each in sent:
            sender.unanswered(each)
    return most


@pytest.mark.parametrize("seed", range(2))
def test_a_thousand_batches_in_flight_arrive_once_and_in_order(seed):
    """P5: any number of in-flight batches (a thousand)."""
    random = Random(seed)
    batches = [random.randint(1, 5) for _ in range(1500)]
    log, sender = log_with(4000), sender_of(*batches, window=4000)
    assert storm(log, sender, random, 5000) > 1000, f"seed {seed}"
    assert sender.is_idle, f"seed {seed}"
    assert values(log) == list(range(sum(batches))), f"seed {seed}"


def test_a_client_that_does_not_throttle_gets_stuck():
    """P5: the throttle is needed: what lies before the window is not known to be written."""
    log, sender = log_with(10), sender_of(*[1] * 20, window=20)
    for sent in [*iter(sender.take, None)]:
        serve(log, sent)
        sender.unanswered(sent)
    tell(sender, *_sent_and_served(sender, log))
    assert sender.failure == OUT_OF_ORDER


@pytest.mark.parametrize(("in_flight", "stuck"), [(5, False), (6, True)])
def test_the_five_batch_cache_gets_stuck_with_a_sixth_batch_in_flight_and_the_latest_sequence_does_not(
    in_flight, stuck
):
    """P5: with the window, the limit of 5 requests in flight is not needed (Kafka's cache needs it)."""
    for kind, expected in ((ProducerStateKind.FIVE_BATCHES, stuck), (ProducerStateKind.LATEST_SEQUENCE, False)):
        log, sender = log_with(100, kind), sender_of(*[1] * in_flight)
        for sent in [*iter(sender.take, None)]:
            serve(log, sent)
            sender.unanswered(sent)
        tell(sender, *_sent_and_served(sender, log))
        assert (sender.failure == OUT_OF_ORDER) is expected
