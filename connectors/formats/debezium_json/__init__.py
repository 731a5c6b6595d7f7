"""The `debezium-json` format: Debezium's change events, one JSON object per message."""
