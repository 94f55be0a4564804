"""Sampling on other machines while this one trains: work distribution and recovery (``dispatch.py``), on Ray (``ray_crew.py``)."""
