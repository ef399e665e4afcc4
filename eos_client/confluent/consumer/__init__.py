"""The consumer: membership, fetching, start offsets, and confluent_kafka's methods over them."""
