"""Clients of the simulated brokers with confluent_kafka's methods, errors and messages."""

import confluent_kafka

from eos_client.client_version import require_minimum

require_minimum(confluent_kafka)
