"""Clients of the simulated brokers with confluent_kafka's methods, errors and messages."""
