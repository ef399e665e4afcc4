"""Exactly-once processing on Apache Kafka, behind one commit gate (KAFKA-19779)."""
