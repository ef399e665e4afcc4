"""What a sink must be allowed on the cluster (docs/how-to/spark-sink.md), and what it does without."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public by its documentation, not by __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from eos_client import errors
from eos_client.integration.spark import EosKafkaSink
from eos_client.testing.embedded_kafka import EmbeddedKafka
from tests.spark.local_query import LocalQuery, each_once
from tests.verification.topics import create_topics

pytestmark = pytest.mark.kafka

WITH_ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
ANYBODY, SOMEBODY_ELSE = "User:ANONYMOUS", "User:nobody"
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
Op, Kind = AclOperation, ResourceType
WAIT_S = 30.0


def binding(kind, name, operation, *, who=ANYBODY, permission=ALLOW, pattern=LITERAL):
    return AclBinding(kind, name, pattern, who, "*", operation, permission)


def on_the_cluster(operation, permission=ALLOW):
    return binding(Kind.BROKER, "kafka-cluster", operation, permission=permission)


def grant(kafka, *bindings):
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for made in admin.create_acls(list(bindings)).values():
        made.result(WAIT_S)


@pytest.fixture(scope="module")
def secretive_broker():
    with EmbeddedKafka(properties=WITH_ACLS) as kafka:
        grant(kafka, on_the_cluster(Op.ALL), on_the_cluster(Op.DESCRIBE_CONFIGS, DENY))
        yield kafka


def test_a_sink_is_content_with_a_cluster_that_does_not_tell_its_limits(secretive_broker):
    topic = f"out-{uuid.uuid4().hex[:8]}"
    create_topics(secretive_broker.bootstrap_servers, {topic: 2})
    EosKafkaSink(secretive_broker.bootstrap_servers, topic, sink_id=topic).check()


@pytest.fixture
def strict(spark, tmp_path):
    """A stage on a broker where nothing is allowed but what the page lists; and the broker."""
    with EmbeddedKafka(properties=WITH_ACLS) as kafka:
        stage = LocalQuery(spark, kafka.bootstrap_servers, tmp_path, uuid.uuid4().hex[:8])
        forbidden = [
            binding(kind, "*", Op.ALL, who=SOMEBODY_ELSE) for kind in (Kind.TOPIC, Kind.GROUP, Kind.TRANSACTIONAL_ID)
        ]
        # The broker and the test's own admin client are ANONYMOUS, too; the former creates its internal topics.
        own = [on_the_cluster(Op.CLUSTER_ACTION), on_the_cluster(Op.ALTER)]
        grant(kafka, *own, binding(Kind.TOPIC, "__", Op.ALL, pattern=PREFIXED), *forbidden)
        yield stage, kafka
        stage.close()


def listed(stage):
    ledger = f"{stage.sink_id}-ledger"
    return [
        *(binding(Kind.TOPIC, stage.topic, operation) for operation in (Op.WRITE, Op.DESCRIBE)),
        *(binding(Kind.TOPIC, ledger, operation) for operation in (Op.CREATE, Op.ALTER, Op.READ, Op.DESCRIBE)),
        *(binding(Kind.GROUP, ledger, operation) for operation in (Op.READ, Op.DESCRIBE)),
        *(
            binding(Kind.TRANSACTIONAL_ID, f"{stage.sink_id}-", operation, pattern=PREFIXED)
            for operation in (Op.WRITE, Op.DESCRIBE)
        ),
    ]


def test_the_permissions_of_the_page_are_enough(strict):
    stage, kafka = strict
    with pytest.raises(errors.ClusterUnfitError):
        stage.direct()(stage.numbers(0, 20), 0)
    grant(kafka, *listed(stage))
    stage.restart()(stage.numbers(0, 20), 0)
    stage.restart(slots=3)(stage.numbers(20, 40), 1)
    grant(
        kafka, *(binding(Kind.TOPIC, stage.topic, Op.READ), binding(Kind.GROUP, "reader-", Op.READ, pattern=PREFIXED))
    )
    assert stage.values() == each_once(0, 40)


def test_a_ledger_topic_that_this_client_may_not_extend_is_named_with_the_way_out(strict):
    stage, kafka = strict
    grant(kafka, *(each for each in listed(stage) if each.operation is not Op.ALTER))
    stage.direct()(stage.numbers(0, 20), 0)
    with pytest.raises(errors.ClusterUnfitError, match=rf"{stage.sink_id}-ledger.* 4 partitions.* extend it yourself"):
        stage.restart(slots=3)(stage.numbers(20, 40), 1)
