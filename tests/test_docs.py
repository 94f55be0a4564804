"""What the documents tell people to type: every command there is with every option it is given, Python that compiles, JSON and TOML that can be read;
blocks marked ``run`` are run, page by page."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from clawback.cli import main_group

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)?([^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
GENERATED = {"cli.md", "settings.md"}


def blocks(page: Path, *languages: str) -> list[tuple[str, str]]:
    """(what follows the language, text)"""
    found = FENCE.findall(page.read_text("utf-8"))
    return [(mark.strip(), text) for language, mark, text in found if language in languages]


def commands(text: str) -> list[list[str]]:
    """The words of each `clawback …` in a shell block, without what is piped or redirected. Heredocs are no commands."""
    text = re.sub(r"<<'?(\w+)'?\n.*?^\1$", "", text.replace("\\\n", " "), flags=re.DOTALL | re.MULTILINE)
    made = []
    for line in text.splitlines():
        one: list[str] = []
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:
            continue  # a quotation that goes on over lines
        for word in [*words, ";"]:
            if word and set(word) <= set("|&;<>"):
                made.append(one)
                one = []
            else:
                one.append(word)
    starts = [next((i for i, w in enumerate(one) if "=" not in w or w.startswith("-")), 0) for one in made]
    return [
        one[at + 1 :]
        for one, at in zip(made, starts, strict=True)
        if one[at : at + 1] == ["clawback"] and "…" not in " ".join(one)
    ]


def parsed(words: list[str]) -> None:
    """Raises ``click.UsageError`` for a command or option that there is not."""
    command: click.Command = main_group
    context = click.Context(main_group, info_name="clawback")
    rest = words
    while isinstance(command, click.Group):
        name = next((w for w in rest if not w.startswith("-")), None)
        if name is None or (command is not main_group and command.get_command(context, name) is None):
            break
        found = command.get_command(context, name)
        if found is None:
            raise click.UsageError(f"there is no command {name!r}")
        rest = rest[rest.index(name) + 1 :]
        context = click.Context(found, info_name=name, parent=context)
        command = found
    if "--help" not in rest and "-h" not in rest:
        command.make_parser(context).parse_args(list(rest))


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.name not in GENERATED], ids=lambda p: str(p.relative_to(ROOT))
)
def test_what_is_to_be_typed_exists(page: Path) -> None:
    wrong = []
    for _, text in blocks(page, "bash", "sh", "console"):
        for words in commands(text):
            try:
                parsed(words)
            except click.UsageError as error:
                wrong.append(f"{shlex.join(words)}: {error.message}")
    assert not wrong, "\n".join(wrong)
    for mark, text in blocks(page, "python"):
        if "…" not in text and "..." not in text and mark != "norun":
            ast.parse(text)
    for _, text in blocks(page, "json"):
        if "…" not in text:
            json.loads(text)
    for _, text in blocks(page, "toml"):
        tomllib.loads(text)


def test_the_check_finds_what_is_wrong() -> None:
    for words in (["rate", "--loudly"], ["nonsense"], ["raters", "invite", "--rôle", "x"]):
        with pytest.raises(click.UsageError):
            parsed(words)
    assert commands("A=1 clawback good && clawback bad --note 'a | b' # why\nclawback ask … \n| clawback x") == [
        ["good"],
        ["bad", "--note", "a | b"],
        ["x"],
    ]  # fmt: skip


def test_every_page_is_in_the_sites_menu() -> None:
    """`make site` fails otherwise, and is not run with the tests."""
    menu = (ROOT / "mkdocs.yml").read_text("utf-8")
    pages = {p.relative_to(ROOT / "docs").as_posix() for p in PAGES if p.is_relative_to(ROOT / "docs")}
    named = set(re.findall(r"[\w./-]+\.md", menu))
    assert named == pages


RUN = [
    p
    for p in PAGES
    if any(m == "run" for m, _ in blocks(p, "bash")) and p.name != "sirl.md"  # has a test of its own
]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda p: p.name)
def test_what_is_marked_is_run(page: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    environment = os.environ | {
        "CLAWBACK_HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    script = "\n".join(text for mark, text in blocks(page, "bash") if mark == "run")
    done = subprocess.run(
        ["bash", "-euc", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1500
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"


# ------------------------------------------------------------------------------------------------------- links

LINKED = [
    *PAGES,
    *sorted((ROOT / "research").rglob("*.md")),
    *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "integrations").rglob("README.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]*))?\)|(?:src|srcset)=\"([^\"#]+)\"")


@functools.cache
def anchors(page: Path) -> set[str]:
    """The names under which the headings of a page can be linked to, as GitHub and MkDocs make them."""
    text = FENCE.sub("", page.read_text("utf-8"))
    found: list[str] = []
    for heading in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")
        found.append(name if name not in found else f"{name}-{found.count(name)}")
    return set(found)


def dead_links(page: Path) -> list[str]:
    """The links of a page that lead to no file, or to no heading."""
    dead = []
    for target, anchor, source in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        path = (page.parent / (target or source)).resolve() if target or source else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            dead.append(f"{target or source}#{anchor}".rstrip("#"))
    return dead


@pytest.mark.parametrize("page", LINKED, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert dead_links(page) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# One: two, three\n\n```sh\n# no heading\n```\n")
    page = tmp_path / "a.md"
    page.write_text(
        "[x](b.md#one-two-three) [y](b.md#no-heading) [z](c.md) [w](https://example.org) [v](#a)\n# A\n"
    )
    assert dead_links(page) == ["b.md#no-heading", "c.md"]


# ------------------------------------------------------------------------------------------------------ lengths

FOR_CONTRIBUTORS = {"architecture.md", "dependencies.md", "releases.md", "testing.md"}


def words(text: str) -> int:
    """Words with a letter or digit; code blocks do not count."""
    return sum(bool(re.search(r"\w", word)) for word in FENCE.sub("", text).split())


def test_the_pages_stay_short() -> None:
    """README is read in five minutes, and what users read in a day: not what is generated, decisions, benchmarks and contributors' pages."""
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 900
    docs = ROOT / "docs"
    apart = GENERATED | {"families.md"} | FOR_CONTRIBUTORS
    pages = [
        page
        for page in PAGES
        if page.is_relative_to(docs)
        and page.relative_to(docs).as_posix() not in apart
        and page.relative_to(docs).parts[0] not in ("decisions", "benchmarks")
    ]
    assert sum(words(page.read_text("utf-8")) for page in pages) <= 35_000
    assert len((docs / "results.md").read_text("utf-8").splitlines()) <= 120
