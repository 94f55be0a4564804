"""The trainer's key is its own, and a checkpoint that is saved again is never gone."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from clawback import config
from clawback.extensions.hosted import hosted_run as elsewhere
from clawback.files import replace_folder, restore_folder
from clawback.paths import HOSTED_KEY_FILE, Home, secret


def test_the_trainers_key_is_not_the_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    config.save(home.config, {"hosted": {"url": "http://127.0.0.1:8753"}})
    owner = secret(home.root / "token")
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    key = elsewhere.where(home, config.load(home.config)).key
    assert key == secret(home.root / HOSTED_KEY_FILE)
    assert key != owner
    assert (home.root / HOSTED_KEY_FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("dies_at", range(4))
def test_killed_anywhere_a_checkpoint_is_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: int
) -> None:
    class Killed(BaseException):
        pass

    folder, new = tmp_path / "name", tmp_path / ".name.new"
    for path, text in ((folder, "old"), (new, "new")):
        path.mkdir()
        (path / "state").write_text(text)
    steps = 0
    rename = Path.rename

    def counted(self: Path, target: Path) -> Path:
        nonlocal steps
        if steps == dies_at:
            raise Killed
        steps += 1
        return rename(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", counted)
        with contextlib.suppress(Killed):
            replace_folder(new, folder)
    restore_folder(folder)
    assert (folder / "state").read_text() == ("old" if dies_at < 2 else "new")
    assert not (tmp_path / ".name.old").exists()
