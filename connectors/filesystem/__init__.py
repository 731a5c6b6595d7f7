"""Files of lines as a bounded source: one split per file, read in order.

`files` finds and reads them, `connector` offers them as a table.
"""
