"""The `rocksdb` backend: state larger than memory, on this machine's disk. The only package that knows rocksdict.

Hot rows of a keyed table live in the same columns as the in-memory backend's; a row is in memory or in the database,
never in both: it moves. What a batch does not find in memory is read with one multi-get, what has been cold is written
with one batch when the input batch has ended. Windows keep their youngest blocks in memory. The database is a cache of
this process, made anew at each start: durable are the segments of checkpoints alone, and those are the same for every
backend. A snapshot reads the database through an iterator, whose view is fixed when it is made.
"""
