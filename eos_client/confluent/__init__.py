"""The adapter to confluent_kafka: the only package, apart from the simulated clients, that imports it."""

import confluent_kafka

from eos_client.client_version import require_minimum

require_minimum(confluent_kafka)
