"""Random processes share transactional.ids; whatever they, time and restarts do, transactions are atomic and fenced."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eos_client.testing.simulator.brokers.model import BrokerError
from tests.simulator.transaction_bench import AUDIT_0, INVOICES_0, TransactionBench

TXNS = ("billing", "shipping")
PARTITIONS = (INVOICES_0, AUDIT_0)
PROCESSES = 4

process = st.integers(0, PROCESSES - 1)
outcome = st.booleans()


def answer(ask):
    """What a request returns, and the code of its refusal."""
    try:
        return ask(), None
    except BrokerError as refusal:
        return None, refusal.code


class Transactions(RuleBasedStateMachine):
    """Process n uses TXNS[n % 2]. The model knows the values of each open transaction, and which were committed."""

    def __init__(self):
        super().__init__()
        self.bench = TransactionBench(transactional_id_expiration_s=300.0)
        self.identity = {}
        self.owner_inits = {}  # identity -> the `expected` that it was first given for
        self.fenced = set()
        self.sequences = {}
        self.open: dict[str, list[bytes]] = {txn: [] for txn in TXNS}  # values of the open transaction
        self.committed = set()
        self.values = 0

    # -- what processes do ---------------------------------------------------------------------------------------

    @rule(n=process, bump=st.booleans())
    def init(self, n, bump):
        txn, expected = TXNS[n % 2], self.identity.get(n) if bump else None
        current = self.bench.coordinator.describe(txn)
        given, code = answer(lambda: self.bench.init(expected, txn))
        if given is None:
            assert code == "CONCURRENT_TRANSACTIONS" or (code == "PRODUCER_FENCED" and expected is not None)
            self._note_aborts()
            return
        assert given not in self.fenced, "a fenced identity is never given again"
        if given in self.owner_inits:
            assert expected is not None, "only a repeated bump gets what was given before"
            assert self.owner_inits[given] == expected
        self.owner_inits.setdefault(given, expected)
        if current is not None and current.producer != given:
            self.fenced.add(current.producer)
        self.identity[n] = given

    @rule(n=process, partition=st.sampled_from(PARTITIONS))
    def write(self, n, partition):
        producer = self.identity.get(n)
        if producer is None:
            return
        value, sequence = b"%d" % self.values, self.sequences.get((producer, partition), 0)
        try:
            self.bench.add(producer, partition, txn=TXNS[n % 2])
            self.bench.write(producer, value, sequence=sequence, partition=partition, txn=TXNS[n % 2])
        except BrokerError:
            return
        assert producer not in self.fenced
        self.values += 1
        self.sequences[producer, partition] = sequence + 1
        self.open[TXNS[n % 2]].append(value)

    @rule(n=process, commit=outcome, times=st.integers(1, 2))
    def end(self, n, commit, times):
        txn, producer = TXNS[n % 2], self.identity.get(n)
        if producer is None:
            return
        for _ in range(times):
            before = self.bench.coordinator.describe(txn)
            try:
                self.bench.end(producer, commit=commit, txn=txn)
            except BrokerError:
                continue
            assert producer not in self.fenced
            if before is not None and before.state == "Ongoing":
                self.committed.update(self.open[txn] if commit else ())
                self.open[txn] = []

    # -- what happens to them ------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 3.0, 12.0, 301.0]))
    def wait(self, seconds):
        self.bench.at(self.bench.clock() + seconds)
        self._note_aborts()

    @rule()
    def restart(self):
        self.bench.coordinator.restart()

    @rule(hold=st.booleans())
    def hold(self, hold):
        self.bench.coordinator.hold_markers = hold
        self.bench.at(self.bench.clock())

    @rule(txn=st.sampled_from(TXNS))
    def forget(self, txn):
        if self.bench.coordinator.describe(txn) is not None:
            self.bench.coordinator.forget(txn)
            self._note_aborts()

    @precondition(lambda self: any(self.bench.coordinator.describe(txn) for txn in TXNS))
    @rule(txn=st.sampled_from(TXNS), epoch=st.sampled_from([32_764, 32_765, 32_766]))
    def bring_near_exhaustion(self, txn, epoch):
        current = self.bench.coordinator.describe(txn)
        if current is None or current.state.startswith("Prepare") or current.producer.producer_epoch >= epoch:
            return
        self.bench.coordinator.set_epoch(txn, epoch)
        self.fenced.add(current.producer)

    def _note_aborts(self):
        for txn in TXNS:
            description = self.bench.coordinator.describe(txn)
            if description is None or description.state != "Ongoing":
                self.open[txn] = []

    # -- what always holds ---------------------------------------------------------------------------------------

    @invariant()
    def decided_transactions_are_shown_whole_and_others_not_at_all(self):
        states = [d.state for d in map(self.bench.coordinator.describe, TXNS) if d is not None]
        shown = [value for partition in PARTITIONS for value in self.bench.visible(partition)]
        assert len(shown) == len(set(shown))
        assert set(shown) <= self.committed
        if not any(state == "Ongoing" or state.startswith("Prepare") for state in states):
            assert set(shown) == self.committed
            assert all(log.last_stable_offset == log.log_end_offset for log in self.bench.logs.values())

    @invariant()
    def nobody_has_the_epoch_that_is_for_fencing(self):
        assert all(producer.producer_epoch < 32_767 for producer in self.owner_inits)


Transactions.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestTransactions = Transactions.TestCase
