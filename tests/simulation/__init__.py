"""A whole cluster in one thread from one seed. Start with `cluster.py`."""
