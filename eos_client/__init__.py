"""Exactly-once processing on Apache Kafka, behind one commit gate (KAFKA-19779)."""

from typing import TYPE_CHECKING

from eos_client.lazy_names import lazy_names

if TYPE_CHECKING:
    from eos_client.clients import EosConsumer, EosProducer
    from eos_client.config import EosConfig
    from eos_client.confluent.serialisation import DeserializedRecord
    from eos_client.core.commit_gate import CommitDecision, CommitGate
    from eos_client.core.model import GroupGeneration, Outcome
    from eos_client.loop import AsyncExactlyOnceLoop, ExactlyOnceLoop
    from eos_client.package_version import __version__ as __version__
    from eos_client.ports import OutputRecord, Record
else:  # for a type checker every name would be an attribute of a module with `__getattr__`, mistyped ones too
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "AsyncExactlyOnceLoop": "eos_client.loop",
            "CommitDecision": "eos_client.core.commit_gate",
            "CommitGate": "eos_client.core.commit_gate",
            "DeserializedRecord": "eos_client.confluent.serialisation",
            "EosConfig": "eos_client.config",
            "EosConsumer": "eos_client.clients",
            "EosProducer": "eos_client.clients",
            "ExactlyOnceLoop": "eos_client.loop",
            "GroupGeneration": "eos_client.core.model",
            "Outcome": "eos_client.core.model",
            "OutputRecord": "eos_client.ports",
            "Record": "eos_client.ports",
            "__version__": "eos_client.package_version",
            "errors": "eos_client.errors",
            "listeners": "eos_client.listeners",
            "observe": "eos_client.observe",
        },
    )

__all__ = [
    "AsyncExactlyOnceLoop",
    "CommitDecision",
    "CommitGate",
    "DeserializedRecord",
    "EosConfig",
    "EosConsumer",
    "EosProducer",
    "ExactlyOnceLoop",
    "GroupGeneration",
    "Outcome",
    "OutputRecord",
    "Record",
]
