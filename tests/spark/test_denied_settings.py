"""A cluster whose settings this client may not read is no unfit cluster: managed ones often deny that."""

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

from eos_client.integration.spark import EosKafkaSink
from eos_client.testing.embedded_kafka import EmbeddedKafka
from tests.verification.topics import create_topics

pytestmark = pytest.mark.kafka

WITH_ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
ANYBODY = "User:ANONYMOUS"
WAIT_S = 30.0


def on_the_cluster(operation, permission):
    pattern = (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL)
    return AclBinding(*pattern, ANYBODY, "*", operation, permission)


@pytest.fixture(scope="module")
def secretive_broker():
    with EmbeddedKafka(properties=WITH_ACLS) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        rest = on_the_cluster(AclOperation.ALL, AclPermissionType.ALLOW)
        denied = on_the_cluster(AclOperation.DESCRIBE_CONFIGS, AclPermissionType.DENY)
        for made in admin.create_acls([rest, denied]).values():
            made.result(WAIT_S)
        yield kafka


def test_a_sink_is_content_with_a_cluster_that_does_not_tell_its_limits(secretive_broker):
    topic = f"out-{uuid.uuid4().hex[:8]}"
    create_topics(secretive_broker.bootstrap_servers, {topic: 2})
    EosKafkaSink(secretive_broker.bootstrap_servers, topic, sink_id=topic).check()
