"""Format `csv`: one record per message or line, by the rules of Flink's.

`options` types the options, `records` takes texts out of records, `texts` turns texts into values, `decode` and
`encode` put them together, `format` is the registry's door.
"""
