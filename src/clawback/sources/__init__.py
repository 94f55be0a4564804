"""Sources of training examples: ratings, comparisons, a teacher, a sentence that is distilled, graded fresh answers.

The face of the room: what others may import. Importing it is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback import plugins

if TYPE_CHECKING:
    from clawback.sources.targets import barred_models, is_named, is_other
else:
    __all__, __getattr__ = plugins.face(__name__, {"targets": "barred_models is_named is_other"})
