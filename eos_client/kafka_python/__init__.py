"""Adapts kafka-python, for the few requests that librdkafka does not have. It comes with the extra ``[ops]``."""
