"""The Nexmark benchmark's auction site as a source: persons, auctions and bids, deterministic by seed.

`events` makes the columns of a run of event numbers, vectorised; `connector` offers them as a table.
"""
