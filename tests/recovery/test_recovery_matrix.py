"""Every transactional request, answered with every error code by librdkafka's mock cluster.

What the application sees, what the recovery table promises for it, and that doing what the error is named for brings
the producer back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import KafkaError

from eos_client import errors
from eos_client.confluent.group_metadata import decode
from eos_client.core.model import GroupGeneration
from eos_client.core.producer_recovery import recovery_for
from tests.recovery.mock_application import (
    HASTY,
    LIMITS,
    MEMBERSHIP,
    STOPPED_CALLS,
    Application,
    Failure,
    FailureAccount,
    application,
)
from tests.recovery.mock_cluster import MockCluster
from tests.recovery.recovery_cases import (
    CELLS,
    CODES,
    EXCLUSIONS,
    LASTING,
    OWN_FENCES,
    SEEN_CELLS,
    UNSEEN_CELLS,
    Answered,
    Cell,
)

# Handles are destroyed side by side here, and catch_warnings() is one for the whole process.
pytestmark = pytest.mark.filterwarnings("ignore:Producer abort_transaction failed during close:RuntimeWarning")

WITHOUT_END = 100
MISDIRECTED_MAX = 5
AT_ONCE = 40  # cells wait for timers of librdkafka, not for a processor


def provoke(cluster: MockCluster, running: Application, cell: Cell) -> Failure | None:
    """Have one request of a running application, or its first one, answered with the cell's code."""
    codes = [getattr(KafkaError, cell.code)] * (WITHOUT_END if (cell.answered, cell.code) in LASTING else 1)
    if cell.answered in {Answered.INIT, Answered.FIND_TRANSACTION}:
        cluster.fail_next(cell.answered.api_key, *codes)
        return running.call("init_transactions")
    assert running.call("init_transactions") is None
    if cell.answered is not Answered.FIND_GROUP:  # the group's coordinator is looked for once
        assert running.transaction() is None
    cluster.fail_next(cell.answered.api_key, *codes)
    if cell.answered is Answered.BUMP:
        cluster.fail_next(Answered.PARTITIONS.api_key, KafkaError.UNKNOWN_PRODUCER_ID)
        assert isinstance(getattr(running.transaction(), "error", None), errors.AbortableError)
        return running.call("abort_transaction")
    return running.transaction(end="abort_transaction" if cell.answered is Answered.ABORT else "commit_transaction")


def drive(cell: Cell) -> FailureAccount:
    """The cell's story; again where the answer for the group's coordinator went to a look-up of the transaction's.

    Both are asked for by one kind of request, and a starved client asks for the transaction's at any time.
    """
    story = driven(cell)
    for _ in range(MISDIRECTED_MAX):
        is_unseen = story.failure is None and cell.meaning is not None
        if cell.answered is not Answered.FIND_GROUP or not (
            is_unseen or "transaction coordinator" in str(story.failure)
        ):
            break
        story = driven(cell)
    return story


def driven(cell: Cell) -> FailureAccount:
    with application(generated_id=cell.generated_id) as (cluster, running):
        running.producer.limits = HASTY if cell.word == "overdue" else LIMITS
        failure = provoke(cluster, running, cell)
        running.producer.limits = LIMITS
        story = running.live_on(failure, FailureAccount())
        if (cell.answered, cell.code) not in LASTING:
            assert cluster.unanswered(cell.answered.api_key) == 0, "the error was never given"
        if story.failure is not None and not story.committed:
            story.refused = {name: running.call(name) for name in STOPPED_CALLS}
        return story


@pytest.fixture(scope="module")
def story_of(request: pytest.FixtureRequest) -> Iterator[Callable[[Cell], FailureAccount]]:
    """Drive all cells that were selected at once, each on a mock cluster of its own; return the story of one."""
    here = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    chosen = [item.callspec.params.get("cell") for item in here if hasattr(item, "callspec")]
    selected = [cell for cell in chosen if isinstance(cell, Cell)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        stories = {cell: pool.submit(drive, cell) for cell in selected}
        yield lambda cell: stories[cell].result()


@pytest.mark.parametrize("cell", [*SEEN_CELLS, *OWN_FENCES], ids=str)
def test_an_answer_is_seen_as_promised_and_recovered_from_as_named(cell, story_of):
    story = story_of(cell)
    meaning = cell.meaning
    if meaning is None:
        assert story.failure is None, story
        assert story.committed, story
        return
    failure = story.failure
    assert failure is not None, "nobody saw the error"
    assert failure.named_for is meaning.error, story
    assert failure.call == cell.seen_by, story
    assert (failure.kafka_error.name(), failure.kafka_error.fatal()) == (cell.seen_as, cell.fatal), story
    for named in (failure.call, cell.seen_as if cell.word != "overdue" else "2 s", "transactional.id", meaning.way_out):
        assert named in str(failure.error), story
    promised = recovery_for(failure.as_told_to_the_table(generated_id=cell.generated_id))
    assert promised.action is meaning.action, promised.reason
    assert promised.reason in str(failure.error), story
    assert story.came_back_by == meaning.comes_back_by, story
    if meaning.comes_back_by is None:
        assert not story.committed, story
        assert all(story.refused.values()), story.refused
        if cell.fatal or meaning.error is errors.ProducerFencedError:
            assert {again.named_for for again in story.refused.values() if again} == {meaning.error}
    else:
        assert story.committed, story
        assert story.codes_again == ([meaning.fails_again] if meaning.fails_again else []), story


@pytest.mark.parametrize("cell", UNSEEN_CELLS, ids=str)
def test_an_answer_that_no_broker_gives_still_ends_in_a_commit_or_a_stop(cell, story_of):
    story = story_of(cell)
    if not story.committed:
        assert isinstance(
            story.failure.error, (errors.ClusterUnfitError, errors.ProducerFencedError, errors.FatalClientError)
        ), story
        assert all(story.refused.values()), story.refused


class TestTheMatrix:
    def test_it_asks_every_request_for_every_code(self):
        assert len(CELLS) == len({(cell.answered, cell.code) for cell in CELLS})
        assert {(cell.answered, cell.code) for cell in CELLS} == {(a, code) for a in Answered for code in CODES}

    def test_what_it_leaves_out_is_excluded_with_a_reason_and_nothing_else_is(self):
        left_out = {(cell.answered, cell.code) for cell in UNSEEN_CELLS}
        excluded = {(a, code) for exclusion in EXCLUSIONS for a in exclusion.answered for code in exclusion.codes}
        assert left_out == excluded
        assert all(exclusion.reason for exclusion in EXCLUSIONS)

    def test_its_members_metadata_is_what_the_client_library_makes(self):
        assert decode(MEMBERSHIP) == GroupGeneration(3, "member", "group")
