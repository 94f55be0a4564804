"""Whether a version is better than the live one, by evidence that did not train it: measurements, questions to the owner, one rule, one report.

The package can be called: ``clawback.gate(store, home, number)`` judges a version, as ``clawback.gate.adapter_gate.gate`` does.
"""

import sys
from types import ModuleType
from typing import Any


class _Gate(ModuleType):
    def __call__(self, *given: Any, **named: Any) -> Any:
        from clawback.gate.adapter_gate import gate

        return gate(*given, **named)


sys.modules[__name__].__class__ = _Gate
