"""The adapter to confluent_kafka: the only package, apart from the simulated clients, that imports it."""
