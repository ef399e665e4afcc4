"""The loop and the wrappers on a cluster that asks who they are (docs/how-to/secure-clusters.md)."""

import re
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from eos_client import EosConsumer, EosProducer
from eos_client.cli.exit_codes import ExitCode
from eos_client.cli.failures import exit_code_of
from eos_client.confluent.diagnosis import why_init_failed
from eos_client.confluent.last_errors import LastErrors
from eos_client.errors import AuthenticationError, RetriableError
from tests.kafka.loop_support import KIP_848, Job
from tests.support.secured_broker import PASSWORD, RENEWED_AFTER_S, USER, Op, on_group, on_id, on_topic, token_for
from tests.support.waiting import wait_for

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "secure-clusters.md").read_text(encoding="utf-8")
BETWEEN_RECORDS_S = 0.05  # much less than a commit or a connection takes


@pytest.fixture
def job(secured_broker):
    with Job(secured_broker, partitions=2) as made:
        made.transactional_id = f"id-{uuid4().hex[:8]}"
        yield made


def allow(job, broker, user):
    ends = [*on_topic(job.source, Op.READ), *on_topic(job.sink, Op.WRITE)]
    broker.grant(user, *ends, *on_group(job.group, Op.READ), *on_id(job.transactional_id, Op.WRITE))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER", "mTLS"])
def test_the_loop_and_the_wrappers_come_in_by_each_mechanism(mechanism, job, secured_broker):
    allow(job, secured_broker, USER)
    login = secured_broker.login(mechanism)
    job.load(20)
    running = job.start(kafka={**login, **KIP_848}, transactional_id=job.transactional_id)
    job.await_committed()
    running.stop()
    job.load(20)
    consumer = EosConsumer({**login, **KIP_848, "group.id": job.group})
    producer = EosProducer({**login, "transactional.id": job.transactional_id})
    with closing(consumer), closing(producer):
        consumer.subscribe([job.source])
        producer.init_transactions()

        def copy_some():
            with producer.transaction(consumer) as txn:
                for message in consumer.consume(100, 0.1):
                    txn.produce(job.sink, message.value())

        wait_for(lambda: job.committed() == 40, "all inputs committed", copy_some)
    job.assert_exactly_once()


def test_a_producer_with_wrong_credentials_says_so_when_it_is_initialised(secured_broker):
    login = {**secured_broker.login("PLAIN"), "sasl.password": "wr0ng-passw0rd"}
    refusal = pytest.raises(AuthenticationError, match="Invalid username or password")
    with closing(EosProducer({**login, "transactional.id": uuid4().hex})) as producer, refusal as refused:
        producer.init_transactions(20)
    assert "wr0ng-passw0rd" not in str(refused.value) + repr(refused.value)


def test_why_an_init_failed_is_asked_with_the_application_s_own_tokens(secured_broker):
    login = {key: value for key, value in secured_broker.login("OAUTHBEARER").items() if "oauthbearer" not in key}
    settings = {**login, "oauth_cb": lambda _config: token_for(USER)}
    error = why_init_failed(settings, LastErrors(None), 1.0, RetriableError("no answer"), simulated=False)
    assert "brokers answer, the transaction coordinator does not" in str(error)


@pytest.mark.parametrize(
    "is_idle", [pytest.param(True, id="idle", marks=pytest.mark.soak), pytest.param(False, id="at work")]
)
def test_credentials_that_are_taken_away_end_the_loop_and_nothing_is_lost(is_idle, job, secured_broker):
    user = f"user-{uuid4().hex[:8]}"
    secured_broker.add_user(user)
    allow(job, secured_broker, user)
    login = {**secured_broker.login("SCRAM-SHA-512", user), "bootstrap.servers": secured_broker.renewed}
    options = {"transactional_id": job.transactional_id, "recovery_timeout_s": 2.0 * RENEWED_AFTER_S}
    job.load(20)
    running = job.start(kafka={**login, **KIP_848}, **options, commit_timeout_s=5.0)
    job.await_committed()
    secured_broker.remove_user(user)
    work = [] if is_idle else [lambda: job.load(2), lambda: time.sleep(BETWEEN_RECORDS_S)]
    wait_for(lambda: not running.running, "the loop to end", *work)
    assert isinstance(running.error, AuthenticationError)
    assert exit_code_of(running.error) is ExitCode.NOT_AUTHENTICATED
    assert "re-authentication" in str(running.error) or "invalid credentials" in str(running.error)

    secured_broker.add_user(user)
    again = job.start(kafka={**login, **KIP_848}, **{**options, "recovery_timeout_s": 60.0})
    wait_for(lambda: again.error or job.committed() == job.loaded, "all inputs committed")
    again.stop()
    assert PASSWORD not in str(running.error)
    job.assert_exactly_once()


def test_the_page_s_program_gets_its_tokens_by_itself(job, secured_broker):
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {"fetch_token": lambda: token_for(USER)}
    exec(program.replace("/etc/kafka/ca.pem", str(secured_broker.authority)), names)
    allow(job, secured_broker, USER)
    job.load(20)
    kafka = {**names["config"].kafka, "bootstrap.servers": secured_broker.sasl, **KIP_848}
    running = job.start(kafka=kafka, transactional_id=job.transactional_id)
    job.await_committed()
    running.stop()
    job.assert_exactly_once()
