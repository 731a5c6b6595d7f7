"""The `upsert-kafka` connector: a topic whose records are the rows of a table with a primary key, newest last.

The key of a record is the primary key, a record without a value deletes. Clients, transactions, readers and writers
are those of `connectors.kafka`.
"""
