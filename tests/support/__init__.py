"""What tests share: a real Kafka broker and helpers over its topics."""
