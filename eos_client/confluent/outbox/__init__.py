"""Clients that read the rows of an outbox in place of the records of a topic."""
