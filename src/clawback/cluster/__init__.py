"""Other machines draw, this one learns. What is handed out and what becomes of it when somebody dies (``dispatch.py``), by Ray (``ray_crew.py``)."""
