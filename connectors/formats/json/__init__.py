"""The `json` format, with the semantics of Flink's.

Decoding has three roads. `decode` joins them: the fast one parses a whole run of messages with one native call
(`wire` says which Arrow types it asks for and how they become the declared ones) and proves that every message
was exactly one row. What it refuses is split until only the doubtful messages are left; these go one by one
through `record`, which knows every rule exactly and names the field of an error. STRING columns that are fed by
numbers or objects keep their JSON text on a road of their own. `encode` writes rows, column by column.
"""
