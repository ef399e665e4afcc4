"""EosConsumer and EosProducer: they wire the adapters and the rebalance listener to the gate."""

from eos_client.clients.consumer import EosConsumer
from eos_client.clients.producer import EosProducer
from eos_client.clients.transaction_block import Transaction

__all__ = ["EosConsumer", "EosProducer", "Transaction"]
