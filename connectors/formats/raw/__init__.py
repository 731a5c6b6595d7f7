"""The `raw` format: one column, whose value is the message itself. Strings are UTF-8, numbers fixed-width."""
