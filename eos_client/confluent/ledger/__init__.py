"""The clients of a Spark sink: the ledger topic, the lease on it, and the producer of one slot."""
