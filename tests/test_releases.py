"""What builds and checks releases works from wherever its parts are run."""

from __future__ import annotations

import email
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from clawback import __version__

ROOT = Path(__file__).parent.parent


def test_tools_beside_the_environment_are_found_from_any_folder() -> None:
    """`build` unpacks the sdist elsewhere and makes the wheel there: a relative PYTHONPATH leads nowhere."""
    said = subprocess.run(["make", "--dry-run", "dist"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [word.partition("=")[2] for word in said.stdout.split() if word.startswith("PYTHONPATH=")]
    assert len(paths) == 2
    assert all(Path(path).is_absolute() for path in paths)


@pytest.mark.parametrize("manifest", ["claude-code/.claude-plugin/plugin.json", "openclaw/package.json"])
def test_what_is_installed_into_other_programs_has_the_version_of_the_package(manifest: str) -> None:
    assert json.loads((ROOT / "integrations" / manifest).read_text("utf-8"))["version"] == __version__


def test_the_changelog_begins_with_this_version_and_no_version_takes_more_than_a_screen_or_two() -> None:
    versions = re.split(r"^## \[", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)[1:]
    released = [text for text in versions if not text.startswith("Unreleased")]
    assert released[0].startswith(f"{__version__}]")
    assert all(len(text.splitlines()) <= 60 for text in versions)


def test_the_plugin_of_hermes_has_it_too() -> None:
    assert f'version: "{__version__}"' in (ROOT / "integrations/hermes/plugin.yaml").read_text("utf-8")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return zipfile.ZipFile(next(folder.glob("*.whl")))


@pytest.mark.slow
def test_the_wheel_has_what_it_needs_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    sources = {
        p.relative_to(ROOT / "src").as_posix()
        for p in (ROOT / "src/clawback").rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    outside = {name for name in names - sources if ".dist-info/" not in name}
    assert sources <= names
    assert all(name.startswith("clawback/integrations/") for name in outside), outside
    assert not [name for name in outside if "/test/" in name or "/src/" in name or "node_modules" in name]
    for path in (ROOT / "integrations").rglob("*"):
        if (
            path.is_file()
            and not {"src", "test", "node_modules", "__pycache__"} & set(path.parts)
            and path.name != "tsconfig.json"
        ):
            assert f"clawback/integrations/{path.relative_to(ROOT / 'integrations').as_posix()}" in names, (
                path
            )
    licences = {Path(name).name for name in names if ".dist-info/licenses/" in name}
    assert {"LICENSE", *(p.name for p in (ROOT / "src").rglob("*.LICENSE"))} <= licences


@pytest.mark.slow
def test_the_page_of_the_package_has_no_link_that_leads_nowhere(wheel: zipfile.ZipFile) -> None:
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(wheel.read(name))
    assert metadata["Version"] == __version__
    page = metadata.get_payload()
    links = re.findall(r"\]\(([^)\s]+)", page)
    assert len(links) > 5
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    kept = re.findall(r"\]\(([^)\s]+)", (ROOT / "README.md").read_text("utf-8"))
    for link, original in zip(links, kept, strict=True):
        assert link.endswith(original), (link, original)


def test_a_server_without_training_says_who_could_answer() -> None:
    """The extra `proxy` brings no torch: without an upstream there is nobody to answer."""
    program = "import sys; sys.modules['torch'] = None; from clawback.cli import main; sys.exit(main(['serve', '--port', '0']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "[serve]'" in done.stderr
    assert "`clawback serve --upstream URL`" in done.stderr
