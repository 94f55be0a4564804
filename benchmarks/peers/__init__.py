"""What other programs need to be measured beside ours: a job in, a result out, each in a process and venv of its own.

``meter.py`` and the runners (``reinforceclaw_cpu.py``, ``trl_kto.py``, ``clawback_engine.py``) are started as scripts,
by the Python of the venv that holds the program under test; they import nothing of Clawback unless it is Clawback
that they run.
"""
