"""Exactly once into a database: rows and input positions are committed in one database transaction.

Needs the extra ``[sql]``: SQLAlchemy 2, and the driver of your database.
"""

from __future__ import annotations

from eos_client.integration.sql.database_consumer import DatabaseConsumer
from eos_client.integration.sql.database_loop import DatabaseLoop

__all__ = ["DatabaseConsumer", "DatabaseLoop"]
