"""A home for each under one root, and tokens that say whose they are."""

import socket
import stat
from pathlib import Path

import pytest

from clawback import config
from clawback.cli import main
from clawback.errors import NotFound, UsageError
from clawback.extensions.people.homes import PersonHomes, name_of
from clawback.paths import Home


def test_a_token_proves_its_own_name_and_no_other(tmp_path: Path) -> None:
    people = PersonHomes(tmp_path)
    tokens = {name: people.add(name) for name in ("ada", "bob")}
    assert people.names() == ["ada", "bob"]
    for name, token in tokens.items():
        assert people.whose(token) == name
        assert stat.S_IMODE((people.home(name).root / "token").stat().st_mode) == 0o600
    secret = tokens["ada"].partition(".")[2]
    wrong = [
        "",
        "ada",
        "ada.",
        "ada." + secret[:-1],
        "bob." + secret,
        "ADA." + secret,
        "../ada." + secret,
        "eve.x",
        "ada." + secret + "\u00e9",
    ]
    assert [people.whose(text) for text in wrong] == [None] * len(wrong)


def test_an_empty_token_file_lets_nobody_in(tmp_path: Path) -> None:
    people = PersonHomes(tmp_path)
    people.add("ada")
    (people.home("ada").root / "token").write_text("ada.")
    assert people.whose("ada.") is None


def test_a_new_token_ends_the_old_one(tmp_path: Path) -> None:
    people = PersonHomes(tmp_path)
    old = people.add("ada")
    new = people.renew("ada")
    assert (people.whose(old), people.whose(new)) == (None, "ada")
    with pytest.raises(UsageError, match="already"):
        people.add("ada")
    with pytest.raises(NotFound):
        people.renew("bob")


@pytest.mark.parametrize("name", ["", "../x", "A", "a/b", "a.b", "-a", "a" * 40, "a\n"])
def test_what_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no name"):
        PersonHomes(tmp_path).add(name)


def test_somebody_new_has_the_settings_of_the_house(tmp_path: Path) -> None:
    people = PersonHomes(tmp_path)
    config.save(people.house.config, {"training": {"threshold": 5}})
    people.add("ada")
    assert config.load(people.home("ada").config).training.threshold == 5


def test_a_raters_token_says_in_whose_home_it_is_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    people = PersonHomes(tmp_path)
    people.add("ada")
    monkeypatch.setenv("CLAWBACK_HOME", str(people.home("ada").root))
    assert main(["raters", "invite", "ben"]) == 0
    assert "/#token=ada.cbr_" in capsys.readouterr().out
    alone = Home(tmp_path / "elsewhere" / "people" / "ada")
    alone.create()
    (alone.root / "token").write_text("no-name-in-front\n")
    assert name_of(alone) == "", "a home that only lies in a folder of that name"


def test_raters_of_the_home_that_is_not_served_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(tmp_path))
    assert main(["raters", "invite", "anna"]) == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:  # the server ends before it has begun
        assert main(["serve", "--people", "--port", str(taken.getsockname()[1])]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "the tokens of its raters (anna) open nothing" in said
    assert "people/NAME clawback raters invite RATER" in said


def test_who_starts_the_server_is_told_how_people_come_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import uvicorn

    monkeypatch.setenv("CLAWBACK_HOME", str(tmp_path))
    monkeypatch.setattr(uvicorn.Server, "run", lambda *_, **__: None)  # ends before it has begun
    for count in ("nobody yet", "1"):
        main(["serve", "--people", "--port", "0"])
        said = capsys.readouterr().out
        assert f"People:              {count}" in said
        assert "it asks for a person's token" in said
        assert "#token" not in said
        if count == "nobody yet":
            assert main(["people", "add", "ada"]) == 0
            assert main(["people", "add", "ada"]) == 2
            assert "ada is here already" in capsys.readouterr().err
    assert stat.S_IMODE((tmp_path / "people").stat().st_mode) == 0o700
