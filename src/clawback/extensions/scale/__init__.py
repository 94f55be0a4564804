"""More than one process: a gradient shared out among processes and machines (``process_group.py``), the base in parts (``sharding.py``), and sampling on a
Ray cluster while this machine trains: work distribution and recovery (``dispatch.py``, ``ray_crew.py``)."""
