"""The terminal of all commands, the core's and the extensions': what is printed and asked, options, groups, progress, and errors in sentences.

The face of the room: what every command takes from it. Importing it is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback import plugins

if TYPE_CHECKING:
    from clawback.terminal.groups import (
        CommandGroup,
        HelpContext,
        extension_commands,
        find_command,
        in_walk,
        load_command,
        note_new_name,
    )
    from clawback.terminal.options import (
        VERSION,
        as_record,
        current_home,
        json_option,
        listen,
        named_version,
        needs,
        open_store,
        open_turns,
        port_option,
        ray_option,
        version_option,
    )
    from clawback.terminal.output import (
        COLUMNS,
        columns,
        confirm,
        emit,
        fold,
        fold_words,
        one_key,
        quantity,
        say,
        shorten,
        when,
        width,
    )
else:
    __all__, __getattr__ = plugins.face(
        __name__,
        {
            "groups": "CommandGroup HelpContext extension_commands find_command in_walk load_command note_new_name",
            "options": "VERSION as_record current_home json_option listen named_version needs open_store open_turns port_option "
            "ray_option version_option",
            "output": "COLUMNS columns confirm emit fold fold_words one_key quantity say shorten when width",
        },
    )
