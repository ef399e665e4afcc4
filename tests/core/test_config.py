"""What would break exactly-once is refused in words, what was left out gets the safe value, what was set is kept."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, get_args

import pytest

from eos_client.config import EosConfig, OnError
from eos_client.config.client_settings import (
    CONSUMER_ONLY,
    PRODUCER_ONLY,
    check_settings,
    safe_consumer_settings,
    safe_producer_settings,
)
from eos_client.core.commit_gate import CommitValidation, GatePolicy, GateScope, GateSettings
from eos_client.core.model import ProducerLimits
from eos_client.errors import ConfigurationError, EosError

KAFKA = {"bootstrap.servers": "localhost:9092"}


def config(kafka: dict[str, Any] | None = None, **options: Any) -> EosConfig:
    return EosConfig({**KAFKA, **(kafka or {})}, group_id=options.pop("group_id", "billing"), **options)


# -- refusals ------------------------------------------------------------------------------------------------------

BREAKING = [
    ("enable.auto.commit", True, "outside the transaction", "leave it out"),
    ("enable.auto.commit", "true", "outside the transaction", "leave it out"),
    ("enable.auto.commit", " True ", "outside the transaction", "leave it out"),
    ("enable.auto.commit", "t", "outside the transaction", "leave it out"),
    ("enable.auto.commit", 1, "outside the transaction", "leave it out"),
    ("enable.auto.commit", "1", "outside the transaction", "leave it out"),
    ("auto.commit.enable", "true", "outside the transaction", "leave it out"),
    ("isolation.level", "read_uncommitted", "aborted input", "set read_committed"),
    ("isolation.level", "READ_UNCOMMITTED", "aborted input", "set read_committed"),
    ("enable.idempotence", False, "doubled", "leave it out"),
    ("enable.idempotence", "false", "doubled", "leave it out"),
    ("enable.idempotence", "f", "doubled", "leave it out"),
    ("enable.idempotence", 0, "doubled", "leave it out"),
    ("acks", 0, "lost with its leader", "set all"),
    ("acks", "1", "lost with its leader", "set all"),
    ("request.required.acks", 1, "lost with its leader", "set all"),
]
BREAKING_IDS = [f"{key}={value!r}" for key, value, *_ in BREAKING]


def assert_says(error: ConfigurationError, *words: str) -> None:
    missing = [word for word in words if word not in str(error)]
    assert not missing, f"{missing} not in {error}"


@pytest.mark.parametrize(("key", "value", "reason", "way_out"), BREAKING, ids=BREAKING_IDS)
def test_a_setting_that_breaks_exactly_once_is_refused_with_key_value_reason_and_way_out(key, value, reason, way_out):
    with pytest.raises(ConfigurationError) as refusal:
        check_settings({key: value})
    assert_says(refusal.value, f"{key}={value!r}", reason, way_out)


@pytest.mark.parametrize(("key", "value", "_reason", "_way_out"), BREAKING, ids=BREAKING_IDS)
def test_an_unsafe_setting_is_refused_wherever_it_is_given(key, value, _reason, _way_out):
    own = "producer" if key in PRODUCER_ONLY else "consumer"
    for options in ({"kafka": {key: value}}, {own: {key: value}}):
        with pytest.raises(ConfigurationError, match=key):
            config(**options)
    complete = safe_producer_settings if own == "producer" else safe_consumer_settings
    with pytest.raises(ConfigurationError, match=key):
        complete({"group.id": "g", key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("enable.auto.commit", False),
        ("enable.auto.commit", "false"),
        ("isolation.level", "read_committed"),
        ("enable.idempotence", "true"),
        ("acks", "all"),
        ("acks", -1),
        ("request.required.acks", "all"),
    ],
)
def test_the_safe_value_said_aloud_is_welcome(key, value):
    check_settings({key: value})


REFUSED_OPTIONS = [
    ({"kafka": {"bootstrap.servers": ""}}, ["bootstrap.servers", "missing", "host:port"]),
    ({"group_id": ""}, ["group.id=''", "blank", "Name the consumer group"]),
    ({"group_id": " "}, ["group.id=' '", "blank", "Name the consumer group"]),
    ({"transactional_id": ""}, ["transactional_id", "''"]),
    ({"scope": "partitions"}, ["scope='partitions'", "member, partition"]),
    ({"policy": "wait"}, ["policy='wait'", "skip, hold, block"]),
    ({"commit_validation": "strict"}, ["commit_validation='strict'", "unknown, exact, classic, assignment_epoch"]),
    ({"on_error": "retry"}, ["on_error='retry'", "stop, skip, dead_letter"]),
    ({"on_error": "dead_letter"}, ["on_error='dead_letter'", "dead_letter_topic=None"]),
    ({"dead_letter_topic": "dead"}, ["on_error='stop'", "dead_letter_topic='dead'", 'on_error="dead_letter"']),
    ({"kafka": {"group.id": "other"}}, ["group.id", "'other'", "group_id='billing'", "Give it once"]),
    ({"consumer": {"group.id": "other"}}, ["group.id", "'other'", "group_id='billing'", "Give it once"]),
    (
        {"kafka": {"transactional.id": "b-0"}},
        ["transactional.id", "'b-0'", "transactional_id=None", "the option transactional_id"],
    ),
    (
        {"producer": {"transactional.id": "b-0"}, "transactional_id": "b-1"},
        ["transactional.id", "'b-0'", "transactional_id='b-1'", "Give it once"],
    ),
    (
        {"kafka": {"transaction.timeout.ms": 9000}},
        ["transaction.timeout.ms", "9000", "9100 ms", "Raise it to 9100 or more"],
    ),
    ({"producer": {"transaction.timeout.ms": "9099"}}, ["transaction.timeout.ms", "'9099'", "9100 ms"]),
    ({"kafka": {"transaction.timeout.ms": "soon"}}, ["transaction.timeout.ms", "'soon'", "milliseconds"]),
    ({"kafka": {"max.poll.interval.ms": "soon"}}, ["max.poll.interval.ms", "'soon'", "milliseconds"]),
    (
        {"liveness_limit_s": 9.0},
        ["liveness_limit_s=9", "9.1 s", "restarted for nothing", "Raise it"],
    ),
    (
        {"transform_attempts_max": 4, "transform_backoff_s": 100.0},
        ["transform_attempts_max=4", "transform_backoff_s=100.0", "300 s", "max.poll.interval.ms=300000", "Lower one"],
    ),
    (
        {"transform_attempts_max": 3, "transform_backoff_s": 5.0, "kafka": {"max.poll.interval.ms": 10_000}},
        ["transform_attempts_max=3", "10 s", "max.poll.interval.ms=10000"],
    ),
]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("scope", GateScope), ("policy", GatePolicy), ("commit_validation", CommitValidation), ("on_error", OnError)],
)
def test_a_type_checker_allows_the_choices_that_are_not_refused(name, kind):
    (written,) = (field.type for field in dataclasses.fields(EosConfig) if field.name == name)
    allowed = eval(str(written), vars(sys.modules[EosConfig.__module__]))  # get_type_hints of 3.10 fails at KW_ONLY
    assert get_args(allowed) == tuple(choice.value for choice in kind)


@pytest.mark.parametrize(("options", "words"), REFUSED_OPTIONS, ids=[str(options) for options, _ in REFUSED_OPTIONS])
def test_a_contradiction_or_a_wrong_choice_is_refused_in_words(options, words):
    with pytest.raises(ConfigurationError) as refusal:
        config(**options)
    assert_says(refusal.value, *words)


NUMBERS = [
    field.name
    for field in dataclasses.fields(EosConfig)
    if field.name.endswith(("_s", "_max")) or field.name in {"max_records", "batch_size"}
]
COUNTS = ["max_records", "batch_size", "transform_attempts_max"]


@pytest.mark.parametrize(
    ("name", "value"),
    [(n, v) for n in NUMBERS for v in (0, -1, -0.5, "5", None, True) if (n, v) != ("transform_retry_limit_s", None)],
)
def test_a_limit_that_is_no_positive_number_is_refused_by_name_and_value(name, value):
    if (name, value) == ("liveness_limit_s", None):
        assert config(liveness_limit_s=None).liveness_limit_s is None, "it means the limit of the group"
        return
    with pytest.raises(ConfigurationError) as refusal:
        config(**{name: value})
    assert_says(refusal.value, f"{name}={value!r}", "greater than 0")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_limit_that_never_ends_is_refused_because_everything_that_waits_has_a_limit(value):
    for name in NUMBERS:
        options: dict[str, Any] = {name: value}
        with pytest.raises(ConfigurationError, match=name):
            config(**options)


@pytest.mark.parametrize("name", COUNTS)
def test_a_count_that_is_no_whole_number_is_refused_by_name_and_value(name):
    options: dict[str, Any] = {name: 1.5}
    with pytest.raises(ConfigurationError) as refusal:
        config(**options)
    assert_says(refusal.value, f"{name}=1.5")


def test_every_option_that_counts_or_lasts_is_among_the_numbers_checked():
    assert set(COUNTS) < set(NUMBERS)
    assert len(NUMBERS) == 13


@pytest.mark.parametrize("settings", [{}, {"group.id": ""}, {"group.id": None}, {"group.id": " "}, {"group.id": "\t"}])
def test_a_consumer_without_a_group_is_refused_because_nothing_would_fence_it(settings):
    with pytest.raises(ConfigurationError, match=r"group\.id=.* is blank: .*fenced"):
        safe_consumer_settings(settings)


@pytest.mark.parametrize("transactional_id", ["", None])
def test_no_producer_is_made_without_an_id_because_it_would_have_no_transactions(transactional_id):
    try:
        settings = safe_producer_settings({"transactional.id": transactional_id})
    except ConfigurationError as refusal:
        assert_says(refusal, "transactional.id")
    else:
        assert settings["transactional.id"]


def test_a_refusal_can_be_caught_as_ours_or_as_a_value_error():
    for kind in (ConfigurationError, EosError, ValueError):
        with pytest.raises(kind):
            config(scope="nothing")


# -- defaults --------------------------------------------------------------------------------------------------------


def test_what_the_user_leaves_out_gets_the_safe_and_the_fast_value():
    assert config().consumer_config() == {
        "bootstrap.servers": "localhost:9092",
        "group.id": "billing",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "fetch.queue.backoff.ms": 10,
    }
    assert config(transactional_id="billing-0").producer_config() == {
        "bootstrap.servers": "localhost:9092",
        "transactional.id": "billing-0",
        "transaction.timeout.ms": 10_000,
        "enable.idempotence": True,
        "acks": "all",
        "linger.ms": 20,
        "retry.backoff.ms": 10,
        "reconnect.backoff.ms": 10,
        "topic.metadata.propagation.max.ms": 5000,
        "metadata.recovery.strategy": "none",
        "reconnect.backoff.max.ms": 1000,
        "delivery.report.only.error": True,
    }


USERS_OWN = [
    ("auto.offset.reset", "latest"),
    ("fetch.queue.backoff.ms", 1000),
    ("enable.auto.commit", "false"),
    ("isolation.level", "read_committed"),
    ("enable.idempotence", "true"),
    ("acks", -1),
    ("linger.ms", 0),
    ("retry.backoff.ms", 500),
    ("reconnect.backoff.ms", 500),
    ("transaction.timeout.ms", "45000"),
    ("topic.metadata.propagation.max.ms", 100),
    ("metadata.recovery.strategy", "rebootstrap"),
    ("reconnect.backoff.max.ms", 2000),
    ("delivery.report.only.error", False),
]


def test_the_users_own_values_are_tried_for_every_default():
    assert {key for key, _ in USERS_OWN} == {*config().consumer_config(), *config().producer_config()} - {
        "bootstrap.servers",
        "group.id",
    }


@pytest.mark.parametrize(("key", "value"), USERS_OWN)
def test_nothing_the_user_set_is_overridden(key, value):
    for options in ({"kafka": {key: value}}, {"consumer": {key: value}, "producer": {key: value}}):
        made = config(**options)
        clients = [made.consumer_config(), made.producer_config()]
        found = [client[key] for client in clients if key in client]
        assert found
        assert all(each is value for each in found)


@pytest.mark.parametrize(
    ("alias", "value", "name"), [("request.required.acks", "all", "acks"), ("queue.buffering.max.ms", 5, "linger.ms")]
)
def test_an_alias_counts_as_set(alias, value, name):
    settings = config({alias: value}).producer_config()
    assert settings[alias] == value
    assert name not in settings


def test_an_answer_is_not_waited_for_as_long_as_a_long_transaction_may_take():
    def answer_timeout(**settings):
        given = {key.replace("_", "."): value for key, value in settings.items()}
        return safe_producer_settings(given).get("socket.timeout.ms")

    assert answer_timeout() is None  # librdkafka's own, a little less than transaction.timeout.ms
    assert answer_timeout(transaction_timeout_ms=20_000) is None
    assert answer_timeout(transaction_timeout_ms=20_001) == 20_000
    assert answer_timeout(transaction_timeout_ms="900000") == 20_000
    assert answer_timeout(transaction_timeout_ms=900_000, socket_timeout_ms=60_000) == 60_000
    assert answer_timeout(socket_timeout_ms=60_000) == 60_000
    assert answer_timeout(message_timeout_ms=60_000) == 20_000


def test_unknown_settings_pass_through_untouched():
    callback = print
    made = config({"sasl.password": "s", "error_cb": callback, "some.future.setting": 3})
    for client in (made.consumer_config(), made.producer_config()):
        assert (client["sasl.password"], client["error_cb"], client["some.future.setting"]) == ("s", callback, 3)


def test_a_consumers_own_settings_stay_with_the_consumer_and_a_producers_with_the_producer():
    accepted: dict[str, Any] = {
        "enable.auto.commit": "false",
        "isolation.level": "read_committed",
        "group.id": "billing",
    }
    accepted |= {"enable.idempotence": "true", "acks": "all", "request.required.acks": "all"}
    accepted |= {"transactional.id": "t", "transaction.timeout.ms": 60_000, "max.poll.interval.ms": 60_000}
    accepted |= {"auto.commit.enable": "false"}
    kafka = {key: accepted.get(key, "x") for key in CONSUMER_ONLY | PRODUCER_ONLY} | {"client.id": "both"}
    made = config(kafka, transactional_id="t")
    consumer, producer = made.consumer_config(), made.producer_config()
    assert set(consumer) & PRODUCER_ONLY == set()
    assert set(producer) & CONSUMER_ONLY == set()
    assert set(consumer) >= CONSUMER_ONLY
    assert set(producer) >= PRODUCER_ONLY
    assert consumer["client.id"] == producer["client.id"] == "both"


def test_settings_for_one_client_win_over_those_for_both():
    made = config({"client.id": "both"}, consumer={"client.id": "reads"}, producer={"client.id": "writes"})
    assert made.consumer_config()["client.id"] == "reads"
    assert made.producer_config()["client.id"] == "writes"


def test_ids_may_be_repeated_as_long_as_they_agree():
    made = config(
        {"group.id": "billing", "transactional.id": "b-0"},
        consumer={"group.id": "billing"},
        producer={"transactional.id": "b-0"},
        transactional_id="b-0",
    )
    assert made.consumer_config()["group.id"] == "billing"
    assert made.producer_config()["transactional.id"] == "b-0"


def test_the_users_dictionaries_are_not_changed():
    kafka, consumer, producer = dict(KAFKA), {"client.id": "r"}, {"client.id": "w"}
    made = EosConfig(kafka, group_id="billing", consumer=consumer, producer=producer)
    made.consumer_config()["x"] = 1
    made.producer_config()["x"] = 1
    assert (kafka, consumer, producer) == (KAFKA, {"client.id": "r"}, {"client.id": "w"})
    assert "x" not in made.consumer_config()


# -- transactional.id and timeouts -----------------------------------------------------------------------------------


def test_without_a_pinned_id_each_producer_gets_one_of_its_own():
    assert "transactional.id" not in config().producer_config()
    ids = {safe_producer_settings({})["transactional.id"] for _ in range(5)}
    assert len(ids) == 5
    assert all(each.startswith("eos-") for each in ids)


def test_a_pinned_id_is_kept():
    assert safe_producer_settings({"transactional.id": "b-0"})["transactional.id"] == "b-0"


def test_a_transaction_may_stay_open_for_an_interval_a_hold_and_a_commit():
    made = config(commit_interval_s=30.0, hold_limit_s=20.0, commit_timeout_s=5.0)
    assert made.open_limit_s == 55.0
    assert made.producer_config()["transaction.timeout.ms"] == 55_000


def test_a_timeout_that_just_fits_is_accepted():
    assert config({"transaction.timeout.ms": 9100}).producer_config()["transaction.timeout.ms"] == 9100
    with pytest.raises(ConfigurationError):
        config({"transaction.timeout.ms": 9099})


def test_a_fraction_of_a_millisecond_is_rounded_up_not_away():
    with pytest.raises(ConfigurationError, match="1001 ms"):
        safe_producer_settings({"transaction.timeout.ms": 1000}, 1.0001)


def test_a_bare_producer_may_have_any_timeout():
    assert safe_producer_settings({"transaction.timeout.ms": 1000})["transaction.timeout.ms"] == 1000


def test_a_delivery_timeout_that_confluent_kafka_takes_is_taken_here_too():
    settings = safe_producer_settings({"delivery.timeout.ms": 30_000})
    assert settings["transaction.timeout.ms"] >= 30_000, "librdkafka refuses a delivery timeout beyond it"


def test_retries_that_end_below_the_poll_interval_are_accepted():
    assert config(transform_attempts_max=3, transform_backoff_s=4.9, kafka={"max.poll.interval.ms": 10_000})


def test_the_retries_of_a_transform_count_as_time_that_a_transaction_is_open():
    made = config(transform_attempts_max=4, transform_backoff_s=5.0)
    assert made.open_limit_s == pytest.approx(9.1 + 15.0)
    assert made.producer_config()["transaction.timeout.ms"] == 24_100
    with pytest.raises(ConfigurationError, match="retries of a transform"):
        config({"transaction.timeout.ms": 24_099}, transform_attempts_max=4, transform_backoff_s=5.0)


def test_a_transaction_longer_than_brokers_allow_is_refused_unless_the_timeout_was_chosen():
    with pytest.raises(ConfigurationError, match=r"900000 ms .*raise the brokers' limit") as caught:
        config(hold_limit_s=900.0)
    assert "hold_limit_s=900" in str(caught.value)
    assert config({"transaction.timeout.ms": 1_000_000}, hold_limit_s=900.0)


SECRETS = [
    "sasl.password",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.password",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.oauthbearer.assertion.private.key.passphrase",
]


@pytest.mark.parametrize("where", ["kafka", "consumer", "producer"])
@pytest.mark.parametrize("key", SECRETS)
def test_repr_masks_secrets(key, where):
    shown = repr(config(**{where: {key: "scope=hunter2", "client.id": "visible"}}))
    assert "hunter2" not in shown
    assert f"{key!r}: '****'" in shown
    assert "'client.id': 'visible'" in shown
    assert "group_id='billing'" in shown


# -- what the config is turned into ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", GateScope)
@pytest.mark.parametrize("policy", GatePolicy)
def test_every_scope_and_every_policy_can_be_chosen(scope, policy):
    made = config(scope=scope.value, policy=policy.value, hold_limit_s=2.0, commit_validation="exact")
    assert made.gate_settings() == GateSettings(scope, policy, 2.0, CommitValidation.EXACT)


def test_an_empty_config_has_the_default_gate_settings():
    assert config().gate_settings() == GateSettings()


def test_the_producers_limits_are_the_configured_ones():
    made = config(commit_timeout_s=1.0, start_timeout_s=2.0, recovery_timeout_s=3.0)
    assert made.producer_limits() == ProducerLimits(1.0, 2.0, 3.0)
    assert config().producer_limits() == ProducerLimits()


def test_a_config_cannot_be_changed_after_it_was_checked():
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().scope = "partition"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kafka": None}, r"kafka must be a dict of settings by their names, not NoneType"),
        ({"consumer": [("a", 1)]}, r"consumer must be a dict of settings by their names, not list"),
        ({"producer": {5: 1}}, r"producer must be a dict of settings by their names"),
        ({"on_error": "dead_letter", "dead_letter_topic": 5}, r"dead_letter_topic=5 must be the name of a topic"),
        ({"on_error": "dead_letter", "dead_letter_topic": " "}, r"dead_letter_topic=' ' must be the name of a topic"),
        ({"poll_timeout_s": 1e30}, r"poll_timeout_s=1e\+30 must be at most 2,000,000 seconds"),
        ({"start_timeout_s": 2_200_000}, r"start_timeout_s=2200000 must be at most 2,000,000 seconds"),
    ],
)
def test_a_value_of_a_wrong_type_or_size_is_named(options, words):
    with pytest.raises(ConfigurationError, match=words):
        EosConfig(**{"kafka": {"bootstrap.servers": "b"}, "group_id": "g", **options})


def test_a_token_that_cannot_be_read_is_refused_without_being_shown():
    settings = {"bootstrap.servers": "b", "sasl.oauthbearer.config": "principal=me clientsecret:S3cr3t"}
    with pytest.raises(ConfigurationError, match=r"part 2 of 'sasl.oauthbearer.config'") as raised:
        EosConfig(settings, group_id="g")
    assert "S3cr3t" not in str(raised.value)
    for allowed in ({"oauth_cb": print}, {"sasl.oauthbearer.method": "oidc"}):
        EosConfig({**settings, **allowed}, group_id="g")
