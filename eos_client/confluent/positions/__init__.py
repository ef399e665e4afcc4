"""Clients whose positions and transactions are a store's: an application's database in place of Kafka's coordinators."""
