"""A cluster that asks who a sink is and what it may do (docs/reference/spark-sink.md), and what it does without."""

from __future__ import annotations

import logging
import os
import uuid

import pytest
import structlog

from eos_client import errors
from eos_client.integration.spark import EosKafkaSink
from tests.spark.local_query import LocalQuery, each_once
from tests.support.secured_broker import PASSWORD, USER, Op, on_group, on_id, on_topic, token_for

pytestmark = pytest.mark.kafka

# -- permissions -----------------------------------------------------------------------------------------------------


def ledger_of(stage):
    return f"{stage.sink_id}-ledger"


LISTED = {
    "write the output": lambda stage: on_topic(stage.topic, Op.WRITE),
    "create the ledger topic": lambda stage: on_topic(ledger_of(stage), Op.CREATE),
    "read the ledger topic": lambda stage: on_topic(ledger_of(stage), Op.READ),
    "read the ledger group": lambda stage: on_group(ledger_of(stage), Op.READ),
    "write the transactional ids": lambda stage: on_id(f"{stage.sink_id}-", Op.WRITE, is_prefix=True),
    "alter the ledger topic": lambda stage: on_topic(ledger_of(stage), Op.ALTER),
}


@pytest.fixture
def strict(spark, secured_broker, tmp_path):
    """A stage whose sinks come in as a user who may do nothing yet, and a function that lets it."""
    stage = LocalQuery(secured_broker.plain, tmp_path, uuid.uuid4().hex[:8])
    stage.spark = spark
    login = secured_broker.login("OAUTHBEARER", stage.sink_id)
    options = {"servers": login.pop("bootstrap.servers"), "config": login, "start_timeout_s": 20.0}

    def grant(*names):
        secured_broker.grant(stage.sink_id, *(each for name in names for each in LISTED[name](stage)))

    yield stage, options, grant
    stage.close()


def test_the_permissions_of_the_page_are_enough(strict):
    stage, options, grant = strict
    grant(*LISTED)
    stage.direct(**options).check()
    stage.restart(**options)(stage.numbers(0, 20), 0)
    stage.restart(slots=3, **options)(stage.numbers(20, 40), 1)
    assert stage.values() == each_once(0, 40)


@pytest.mark.parametrize("missing", [name for name in LISTED if not name.startswith("alter")])
def test_without_one_of_them_nothing_is_written_and_the_error_names_the_resource(missing, strict):
    stage, options, grant = strict
    grant(*(name for name in LISTED if name != missing))
    named = stage.topic if missing == "write the output" else stage.sink_id
    with pytest.raises(errors.ClusterUnfitError, match=named):
        stage.direct(**options)(stage.numbers(0, 20), 0)
    assert stage.values() == each_once(0, 0)


@pytest.mark.parametrize(
    "lost",
    [
        *("write the output", "read the ledger group"),
        *(
            pytest.param(name, marks=pytest.mark.soak)
            for name in ("read the ledger topic", "write the transactional ids")
        ),
    ],
)
def test_a_permission_that_is_taken_away_between_two_batches_is_named_and_each_row_is_written_once(
    lost, strict, secured_broker
):
    stage, options, grant = strict
    grant(*LISTED)
    sink = stage.direct(**options)
    sink(stage.numbers(0, 20), 0)
    secured_broker.take_away(stage.sink_id, *LISTED[lost](stage))
    named = stage.topic if lost == "write the output" else stage.sink_id
    with pytest.raises(errors.ClusterUnfitError, match=named):
        sink(stage.numbers(20, 40), 1)
    assert stage.values() == each_once(0, 20)
    grant(lost)
    stage.restart(**options)(stage.numbers(20, 40), 1)
    assert stage.values() == each_once(0, 40)


def test_a_ledger_topic_that_this_client_may_not_extend_is_named_with_the_way_out(strict):
    stage, options, grant = strict
    grant(*(name for name in LISTED if not name.startswith("alter")))
    stage.direct(**options)(stage.numbers(0, 20), 0)
    with pytest.raises(errors.ClusterUnfitError, match=rf"{stage.sink_id}-ledger.* 4 partitions.* extend it yourself"):
        stage.restart(slots=3, **options)(stage.numbers(20, 40), 1)


def test_a_batch_whose_clients_log_their_settings_and_logins_shows_no_secret(strict, secured_broker, caplog, capfd):
    stage, options, _ = strict
    secured_broker.grant(USER, *(each for permissions in LISTED.values() for each in permissions(stage)))
    login = secured_broker.login("PLAIN")
    structlog.reset_defaults()
    caplog.set_level(logging.DEBUG)
    options |= {
        "servers": login.pop("bootstrap.servers"),
        "config": {**login, "debug": "conf,security", "log_level": "7"},
    }
    sink = stage.direct(**options)
    sink(stage.numbers(0, 20), 0)
    shown = f"{sink!r} {sink} {[repr(part) for part in vars(sink).values()]}"
    logged = caplog.text + "".join(str(vars(record)) for record in caplog.records) + "".join(capfd.readouterr())
    assert stage.events
    assert "SASL" in logged
    assert PASSWORD not in f"{shown} {stage.events} {logged}"


def test_refused_credentials_are_told_before_the_first_batch(secured_broker):
    login = {**secured_broker.login("PLAIN"), "sasl.password": "wr0ng-passw0rd"}
    sink = EosKafkaSink(login.pop("bootstrap.servers"), "out", sink_id="s", slots=1, config=login)
    with pytest.raises(errors.AuthenticationError, match="Invalid username or password") as refused:
        sink.check()
    assert "wr0ng-passw0rd" not in str(refused.value)


# -- tokens ----------------------------------------------------------------------------------------------------------


def asked_by(folder):
    return [int(entry.name.split("-")[0]) for entry in folder.iterdir()]


@pytest.fixture
def with_tokens(strict):
    """A stage, and a function that makes its sinks: everything is granted, and tokens come from ``oauth_cb``."""
    stage, options, grant = strict
    grant(*LISTED)
    asking = {name: options["config"][name] for name in ("security.protocol", "sasl.mechanism", "ssl.ca.location")}

    def sink(oauth_cb, **more):
        config = {**asking, "oauth_cb": oauth_cb, "sasl.oauthbearer.config": "x"}
        return stage.direct(**{**options, "config": config, **more})

    return stage, sink


def test_driver_and_executors_get_their_tokens_from_the_function_of_the_application(with_tokens, tmp_path):
    stage, sink = with_tokens
    asked, user = tmp_path / "asked", stage.sink_id
    asked.mkdir()

    def oauth_cb(config):
        (asked / f"{os.getpid()}-{uuid.uuid4().hex}").write_text(config)
        return token_for(user)

    with_function = sink(oauth_cb)
    for batch in range(3):
        with_function(stage.numbers(20 * batch, 20 * batch + 20), batch)
    assert stage.values() == each_once(0, 60)
    asking = asked_by(asked)
    assert os.getpid() in asking
    on_executors = len(asking) - asking.count(os.getpid())
    assert 0 < on_executors <= 8, "an executor's clients serve later batches, too"


def test_a_function_that_gives_no_token_is_named(with_tokens):
    stage, sink = with_tokens

    def oauth_cb(_):
        raise OSError("no token server")

    without = sink(oauth_cb, start_timeout_s=5.0)
    with pytest.raises(errors.EosError, match=r"oauth_cb gave no token in time.*no token server"):
        without(stage.numbers(0, 20), 0)
