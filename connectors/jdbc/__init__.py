"""Tables of PostgreSQL, read whole or looked up by key. Options are those of Flink's JDBC connector."""
