"""``config``: show and change the settings."""

from __future__ import annotations

import click
import msgspec

from clawback import config as settings_file
from clawback.config import settings
from clawback.errors import UsageError
from clawback.records import JsonObject
from clawback.terminal import (
    CommandGroup,
    current_home,
    emit,
    extension_commands,
    fold,
    json_option,
    shorten,
    width,
)
from clawback.terminal.sentences import nearest


@click.group(cls=CommandGroup, members=extension_commands("config"))
def config() -> None:
    """Show and change the settings (config.toml). All of them: docs/settings.md.

    \b
    clawback config list
    clawback config get training.threshold
    clawback config set training.threshold 48
    clawback config unset training.threshold
    clawback config import training_config.yaml
    """


def _data(key: str, chosen: settings_file.Config) -> JsonObject:
    """What ``--json`` prints of a setting, in every command of this group."""
    setting, current = settings.find(key), settings.value(chosen, key)
    return {
        "key": key,
        "value": msgspec.to_builtins(current),
        "default": msgspec.to_builtins(setting.default) if key == setting.key else None,
        "takes": setting.allowed,
        "meaning": setting.meaning,
    }


@config.command()
@click.argument("key")
@json_option
def get(key: str, as_json: bool) -> None:
    """Print the value of a setting; with --json also its default and what it accepts.

    \b
    clawback config get model.base
    """
    data = _data(key, settings_file.load(current_home().config))
    text = data["value"] if isinstance(data["value"], str) else settings.shown(data["value"])
    emit(data, text, as_json)


@config.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("key")
@click.argument("value")
@json_option
def set_(key: str, value: str, as_json: bool) -> None:
    """Change a setting. The value is checked first; the rest of the file stays as it is.

    A list is words with commas. Settings that hold values by name have a key for each.

    \b
    clawback config set training.preset careful
    clawback config set capture.admin train,rollback
    clawback config set training.overrides.steps 48
    """
    from clawback.jobs import inputs
    from clawback.terminal.progress_bar import waiting

    here = current_home()
    new_value = settings.read(key, value)
    with waiting("loading what checks it", quiet=as_json or not key.startswith("training.")):
        inputs.setting(key, new_value)
    section, _, name = key.partition(".")
    chosen = settings_file.save(here.config, {section: {name: new_value}})
    data = _data(key, chosen)
    emit(data, f"{key} = {settings.shown(data['value'])}", as_json)


@config.command()
@click.argument("key")
@json_option
def unset(key: str, as_json: bool) -> None:
    """Remove a setting from the file, so that its default applies.

    \b
    clawback config unset training.preset
    """
    setting, here = settings.find(key), current_home()
    section, _, name = key.partition(".")
    chosen = (
        settings_file.save(here.config, {section: {name: None}})
        if here.config.exists()
        else settings_file.Config()
    )
    whole = _data(setting.key, chosen)
    emit(whole, f"{setting.key} = {settings.shown(whole['value']) or '(not set)'}", as_json)


@config.command("list")
@click.argument("section", required=False)
@json_option
def list_(section: str | None, as_json: bool) -> None:
    """List all settings, or those of a section. * marks values that are not the default.

    \b
    clawback config list
    clawback config list training
    """
    chosen = settings_file.load(current_home().config)
    if section is not None and section not in settings.sections():
        meant = nearest(section, settings.sections())
        if meant and "." not in section:
            raise UsageError(f"There is no section `{section}` of the settings; did you mean `{meant}`?")
        settings.find(section)
    keys = [one.key for one in settings.settings() if section is None or one.key.startswith(f"{section}.")]
    data = [_data(key, chosen) for key in keys]
    lines = []
    for one in data:
        mark = " " if one["value"] == one["default"] else "*"
        lines.append(f"{mark} " + shorten(f"{one['key']} = {settings.shown(one['value'])}", width() - 2))
    lines += ["", fold("`clawback config get KEY --json` says what a setting does and takes.")]
    emit(data, "\n".join(lines), as_json)


@config.command()
@json_option
def path(as_json: bool) -> None:
    """Where the settings are.

    \b
    clawback config path
    """
    here = current_home()
    emit({"path": str(here.config), "exists": here.config.exists()}, str(here.config), as_json)
