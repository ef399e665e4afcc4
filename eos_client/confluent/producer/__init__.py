"""The producer: a replaceable handle, its init and its outputs, and confluent_kafka's methods over them."""
