"""Pure core: values in, decisions out. No I/O, clock, thread or Kafka library."""
