"""Coordinators that die or move while a loop commits: it goes on by itself, and every record counts once."""

import pytest

from eos_client.confluent.diagnosis import why_init_failed
from eos_client.confluent.last_errors import LastErrors
from eos_client.errors import ClusterUnavailableError, RetriableError
from eos_client.observe import OutcomeResolved, ProducerRebuilt, TransactionAborted, TransactionCommitted
from tests.kafka.loop_support import PROTOCOLS
from tests.recovery.cluster_support import Coordinators, SpreadJob
from tests.support.interception import Intercepted
from tests.support.waiting import wait_for
from tests.verification.conclusive import conclusive

pytestmark = pytest.mark.kafka

QUICK = {"commit_timeout_s": 1.0, "hold_limit_s": 0.5, "start_timeout_s": 30.0}
RECOVERY_S = 60.0
SHUT_DOWN_S = 30.0
MOMENTS = (None, "commit_transaction", None, "send_offsets_to_transaction", None)


@pytest.fixture(scope="module")
def cluster(brokers):
    running = brokers.cluster().running
    Coordinators(running).create_internal_topics()
    return running


@pytest.fixture
def coordinators(cluster):
    found = Coordinators(cluster)
    found.reset()
    return found


def await_commits(running, count=3):
    """Wait for that many more commits; fails at once when the loop has ended."""
    committed = len(running.events.of(TransactionCommitted))

    def come():
        if running.error is not None:
            raise AssertionError("the loop has failed") from running.error
        return len(running.events.of(TransactionCommitted)) >= committed + count

    wait_for(come, f"{count} more commits", timeout_s=RECOVERY_S)


def handles_replaced(running):
    return len(running.events.of(ProducerRebuilt))


def await_replaced(running, before):
    """Wait until one more handle was replaced: the connection to a coordinator that has moved is lost."""
    wait_for(lambda: handles_replaced(running) > before, "the producer's handle is replaced", timeout_s=RECOVERY_S)


def disturbances(running):
    """What a loop says when a transaction did not go through at once."""
    return [
        event
        for event in list(running.events.events)
        if isinstance(event, (TransactionAborted, ProducerRebuilt, OutcomeResolved))
    ]


def finish(job, running):
    job.await_committed(timeout_s=RECOVERY_S)
    running.stop()
    job.assert_exactly_once()


def before_its_next(call, running, strike):
    """Strike when the loop's producer is about to make that call: whoever is to answer it is gone then."""
    struck: list[str] = []

    def striking(raw, *arguments):
        if not struck:
            struck.append(call)
            strike()
        return getattr(raw, call)(*arguments)

    library = running.loop._producer.adapter.library
    library.raw = Intercepted(library.raw, {call: striking})
    wait_for(lambda: struck, f"the producer calls {call}")


def survives_the_death_of(kind, coordinators, *, moments=(None,), pinned=True, **options):
    """Kill the coordinator, see commits without it, let it come back; at each of the moments, on one loop."""
    brokers = coordinators.cluster.brokers
    with SpreadJob(coordinators) as job:
        with job.fed():
            running = job.start(transactional_id=job.transactional_id if pinned else None, **QUICK, **options)
            transactional_id = running.loop._producer.transactional_id
            place = job.places["group"] if kind == "group" else coordinators.of_transactions(transactional_id)
            for moment in moments:
                coordinators.await_in_sync()
                await_commits(running)
                before = len(disturbances(running))
                victim = coordinators.leader(place)
                if moment is None:
                    brokers[victim].kill()
                else:
                    before_its_next(moment, running, brokers[victim].kill)
                coordinators.await_moved(place, victim)
                await_commits(running)
                assert not brokers[victim].running
                assert len(disturbances(running)) > before
                brokers[victim].restart()
                await_commits(running)
        finish(job, running)
        return running.events


def survives_the_moves_of(nodes_of, coordinators, *, together=False):
    """Shut down and restart one broker after the other, as in an upgrade; then let the preferred leaders come back."""
    cluster = coordinators.cluster
    with SpreadJob(coordinators, together=together) as job:
        places = list(job.places.values())
        transactions = job.places["transactions"]
        preferred = [coordinators.preferred(place) for place in places]
        with job.fed():
            running = job.start(transactional_id=job.transactional_id, **QUICK)
            await_commits(running)
            for node in nodes_of(cluster, preferred):
                coordinators.await_in_sync()
                led = [place for place in places if coordinators.leader(place) == node]
                replaced = handles_replaced(running)
                cluster.brokers[node].shut_down(SHUT_DOWN_S)
                for place in led:
                    coordinators.await_moved(place, node)
                await_commits(running)
                if transactions in led:
                    await_replaced(running, replaced)
                cluster.brokers[node].restart()
                await_commits(running)
            coordinators.await_in_sync()
            # Whoever went last leads nothing now: so the election has something to move.
            assert [coordinators.leader(place) for place in places] != preferred
            moves = coordinators.leader(transactions) != coordinators.preferred(transactions)
            replaced = handles_replaced(running)
            coordinators.elect_preferred(*places)
            await_commits(running)
            if moves:
                await_replaced(running, replaced)
        finish(job, running)


@pytest.mark.soak
def test_a_coordinator_is_looked_for_where_the_brokers_keep_its_state(coordinators):
    with SpreadJob(coordinators) as job:
        job.load(10)
        job.start(transactional_id=job.transactional_id)
        job.await_committed()
        for place, name in [(job.places["transactions"], job.transactional_id), (job.places["group"], job.group)]:
            kept = job.messages(place.topic, isolation="read_uncommitted")
            assert {m.partition() for m in kept if name.encode() in m.key()} == {place.partition}


@pytest.mark.soak
def test_the_transaction_coordinator_killed_under_a_commit_leaves_no_outcome_unknown(cluster, coordinators):
    def story(_):
        events = survives_the_death_of("transactions", coordinators, moments=["commit_transaction"])
        assert {event.outcome for event in events.of(OutcomeResolved)} <= {"committed", "aborted"}
        assert events.of(OutcomeResolved)

    conclusive(story, lambda: cluster)


@pytest.mark.soak
def test_the_group_coordinator_killed_before_it_gets_the_offsets_is_gone_on_without(cluster, coordinators):
    moments = ["send_offsets_to_transaction"]
    conclusive(lambda _: survives_the_death_of("group", coordinators, moments=moments), lambda: cluster)


def test_a_start_without_an_answer_while_a_broker_is_down_may_be_tried_again(cluster, coordinators):
    killed, asked = (cluster.brokers[node] for node in (3, 1))
    killed.kill()
    coordinators.await_missed(3)
    settings = {"bootstrap.servers": asked.bootstrap_servers}
    error = why_init_failed(settings, LastErrors(None), 10.0, RetriableError("no answer"), simulated=False)
    assert isinstance(error, ClusterUnavailableError)
    assert "brokers answer, the transaction coordinator does not: no answer" in str(error)


def test_goes_on_by_itself_while_its_coordinators_move_to_another_broker_and_back(cluster, coordinators):
    def coordinating_broker(_, coordinating):
        return set(coordinating)

    conclusive(lambda _: survives_the_moves_of(coordinating_broker, coordinators, together=True), lambda: cluster)


@pytest.mark.soak
def test_goes_on_by_itself_while_every_broker_is_restarted_in_turn(cluster, coordinators):
    def coordinators_last(cluster, coordinating):
        return sorted(cluster.brokers, key=lambda node: node in coordinating)

    conclusive(lambda _: survives_the_moves_of(coordinators_last, coordinators), lambda: cluster)


@pytest.mark.soak
@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
@pytest.mark.parametrize("pinned", [True, False], ids=["pinned", "generated"])
@pytest.mark.parametrize("kind", ["transactions", "group"])
def test_goes_on_after_many_deaths_of_coordinators(kind, pinned, protocol, cluster, coordinators):
    conclusive(
        lambda _: survives_the_death_of(kind, coordinators, moments=MOMENTS, pinned=pinned, consumer=protocol),
        lambda: cluster,
    )
