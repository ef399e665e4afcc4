"""The simulated brokers: Kafka's rules as plain objects, without sockets, threads or a clock of their own.

`eos_client.testing.simulator` names those that are useful alone.
"""
