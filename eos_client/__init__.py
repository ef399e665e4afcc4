"""Exactly-once processing on Apache Kafka, behind one commit gate (KAFKA-19779)."""

from eos_client.clients import EosConsumer, EosProducer
from eos_client.config import EosConfig
from eos_client.core.commit_gate import CommitDecision, CommitGate
from eos_client.core.model import GroupGeneration, Outcome
from eos_client.loop import ExactlyOnceLoop
from eos_client.ports import OutputRecord

__all__ = [
    "CommitDecision",
    "CommitGate",
    "EosConfig",
    "EosConsumer",
    "EosProducer",
    "ExactlyOnceLoop",
    "GroupGeneration",
    "Outcome",
    "OutputRecord",
]
