"""The Nexmark benchmark's auction site as a source: persons, auctions and bids, deterministic by seed.

`events` is a run of event numbers with their times, kinds and identifiers, `columns` makes the values of each field,
vectorised, and `connector` offers them as a table.
"""
