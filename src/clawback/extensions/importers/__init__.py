"""Files of turns, in and out: opened, recognised, understood, stored once, and exported. What is read is one list: ``formats``.

Importing it is cheap. How records are read stands in ``extensions/data_sets`` and ``extensions/chat_histories``; only the importers build on them.

``import_file`` reads one file as it is; the command goes by ``importing``, which shows what was understood before anything is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback import plugins

if TYPE_CHECKING:
    from clawback.extensions.importers.export import export_file
    from clawback.extensions.importers.file_import import import_file, import_transcripts, scored_lines
    from clawback.extensions.importers.storing import ImportReport
else:
    __all__, __getattr__ = plugins.face(
        __name__,
        {
            "export": "export_file",
            "file_import": "import_file import_transcripts scored_lines",
            "storing": "ImportReport",
        },
    )
