"""Settings: those of a loop, those of librdkafka's clients, and those that nobody may see."""

from eos_client.config.loop_config import EosConfig, OnError

__all__ = ["EosConfig", "OnError"]
