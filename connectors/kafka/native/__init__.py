"""librdkafka's own C API, for records by the thousand: columns in and out, nothing in Python per record.

confluent-kafka makes one Python object of every record. Its wheel holds librdkafka as a shared library with a public
C API; `library` calls that by ctypes, `consumer` reads batches of records as columns, `producer` sends them from Arrow
buffers. What the library must be is checked when it is loaded (`library.load`); otherwise, and for what the batch calls
cannot do, the road over Python objects is taken.
"""
