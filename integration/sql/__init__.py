"""Exactly once into a database, and out of it.

Rows and input positions are committed in one database transaction; rows of an outbox are published, and their numbers
committed, in one Kafka transaction.

Needs the extra ``[sql]``: SQLAlchemy 2, and the driver of your database.
"""

from __future__ import annotations

from eos_client.integration.sql.database_consumer import DatabaseConsumer
from eos_client.integration.sql.database_loop import DatabaseLoop
from eos_client.integration.sql.outbox_relay import OutboxRelay
from eos_client.integration.sql.outbox_table import create_outbox, outbox_table, write_outbox

__all__ = ["DatabaseConsumer", "DatabaseLoop", "OutboxRelay", "create_outbox", "outbox_table", "write_outbox"]
