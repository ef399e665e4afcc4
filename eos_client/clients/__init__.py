"""The wrappers: where the adapters, the listeners and the gate meet."""

from eos_client.clients.consumer import EosConsumer
from eos_client.clients.producer import EosProducer
from eos_client.clients.transaction import Transaction, TransactionSession

__all__ = ["EosConsumer", "EosProducer", "Transaction", "TransactionSession"]
