"""Publishing: what is said beforehand, what is done, and the proof that the new adapter answers.

vLLM, Ollama and LM Studio cannot be installed here: they are played by servers that speak their documented protocol and answer with our own
engine, honestly or not. mlx-lm is the real one.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from clawback import engine, store
from clawback.errors import ClawbackError
from clawback.paths import Home
from clawback.release.publishers import Probe

from .conftest import Play, Run, Server


class PlayedVllm(Server):
    def do_GET(self) -> None:
        self.body()
        models = [{"id": "embedded", "root": "embedded", "parent": None}]
        self.say(200, {"data": models + [{"id": n, "parent": "embedded"} for n in self.loaded]})

    def do_POST(self) -> None:
        asked = json.loads(self.body())
        if self.path == "/v1/load_lora_adapter":
            if asked["lora_name"] in self.loaded:
                self.say(400, {"message": "already loaded"})
                return
            self.loaded[asked["lora_name"]] = Path(asked["lora_path"])
            self.say(200, {})
        elif self.path == "/v1/unload_lora_adapter":
            del self.loaded[asked["lora_name"]]
            self.say(200, {})
        else:
            self.answer(asked)


class PlayedOllama(Server):
    """Makes models of GGUF files and of its own models, and takes no adapters, as Ollama 0.34 does."""

    blobs: dict[str, bytes]
    made: dict[str, dict[str, Any]]
    version: Path

    def do_HEAD(self) -> None:
        self.body()
        self.say(200 if self.path.rsplit("/", 1)[1] in self.blobs else 404, None)

    def do_DELETE(self) -> None:
        asked = json.loads(self.body())
        self.say(200 if self.loaded.pop(asked["model"], self) is not self else 404, None)

    def do_POST(self) -> None:
        raw = self.body()
        if self.path.startswith("/api/blobs/"):
            digest = self.path.rsplit("/", 1)[1]
            assert digest == "sha256:" + hashlib.sha256(raw).hexdigest()
            self.blobs[digest] = raw
            self.say(201, None)
            return
        asked = json.loads(raw)
        if self.path == "/api/show":
            parameters = 'stop                           "<|x|>"\nstop "<|y|>"\ntemperature 0.5\ntypical_p 1'
            shown = {"template": "{{ .Prompt }}", "parameters": parameters, "system": "", "parser": "p"}
            self.say(200 if asked["model"] == "small:1b" else 404, shown)
        elif self.path == "/api/create":
            if asked.get("adapters"):
                self.say(400, {"error": "LoRA adapters are no longer supported"})
                return
            if "from" not in asked:
                [digest] = asked["files"].values()
                assert self.blobs[digest].startswith(b"GGUF")
            self.made[asked["model"]] = asked
            self.loaded[asked["model"]] = None if "from" in asked else self.version  # type: ignore[assignment]
            self.say(200, {"status": "success"})
        elif self.path == "/api/copy":
            self.loaded[asked["destination"]] = self.loaded[asked["source"]]
            self.say(200, None)
        else:
            self.answer(asked)


class PlayedLmStudio(Server):
    """Lists what is in its folder of models."""

    folder: Path

    def do_GET(self) -> None:
        self.body()
        for path in self.folder.glob("*/*/*.gguf"):
            self.loaded[path.stem] = self.version  # type: ignore[attr-defined]
        self.say(200, {"data": [{"id": path.stem} for path in self.folder.glob("*/*/*.gguf")]})

    def do_POST(self) -> None:
        self.answer(json.loads(self.body()))


class PlayedMlx(Server):
    """A server that was started without an adapter, and does not read the folder again."""

    def do_POST(self) -> None:
        self.answer(json.loads(self.body()))


@pytest.fixture
def play(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Play]:
    servers = []
    version = request.getfixturevalue("improved").version(1)

    def start(kind: Any) -> str:
        made = type(
            "Played",
            (kind,),
            {
                "policy": engine.load("embedded"),
                "loaded": {},
                "seen": [],
                "blobs": {},
                "made": {},
                "folder": tmp_path / "models",
                "version": version,
            },
        )
        server = ThreadingHTTPServer(("127.0.0.1", 0), made)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    start.made = servers  # type: ignore[attr-defined]
    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_merged_weights_answer_as_the_version_does(improved: Home, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "merged"
    code, said, err = run("publish", "merged", "--output", str(out))
    assert code == 0, err
    assert "answers as the new version does" in said
    assert (out / "model.safetensors").exists()
    assert not (out / "adapter_config.json").exists()
    assert run("publish", "merged", "--output", str(out))[0] == 2, "nothing is overwritten"


def test_a_folder_for_mlx_goes_again_if_the_server_does_not_answer(
    improved: Home, run: Run, tmp_path: Path
) -> None:
    out = tmp_path / "mlx"
    for _ in range(2):
        code, _, err = run("publish", "mlx", "--output", str(out), "--url", "http://127.0.0.1:9")
        assert code == 1
        assert "Is the server running?" in " ".join(err.split())
        assert "was removed again" in " ".join(err.split())
        assert list(tmp_path.iterdir()) == []


def test_a_folder_for_mlx_stays_if_the_server_has_to_be_started_again(
    improved: Home, run: Run, play: Play, tmp_path: Path
) -> None:
    out = tmp_path / "mlx"
    code, _, err = run("publish", "mlx", "--output", str(out), "--url", play(PlayedMlx))
    assert code == 1
    assert f"--adapter-path {out}" in " ".join(err.split())
    assert (out / "adapters.safetensors").exists()


@pytest.mark.parametrize(
    "where",
    [
        ("merged", "--output", "x"),
        ("vllm", "--url", "http://127.0.0.1:9"),
        ("ollama", "--base", "small:1b"),
        ("gguf", "--output", "x.gguf", "--base", "ollama:small:1b"),
        ("mlx", "--output", "x"),
    ],
)
def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    improved: Home,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_ollama: str,
    where: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    code, said, err = run("publish", *where, "--dry-run")
    assert code == 0, err
    assert said.count("would ") >= 3
    assert sorted(tmp_path.rglob("*")) == before


def test_on_vllm_each_version_has_a_name_of_its_own_and_older_ones_are_unloaded_afterwards(
    improved: Home, run: Run, play: Play
) -> None:
    url = play(PlayedVllm)
    loaded = play.made[0].RequestHandlerClass.loaded  # type: ignore[attr-defined]
    with store.connect(improved.database) as db:
        number = db.live().number
    kept = ("somebody-elses", "clawback-verse", "another-v1")
    for name in (*kept, "clawback", "clawback-v99"):
        loaded[name] = improved.version(number)
    for _ in range(2):
        code, said, err = run("publish", "vllm", "--url", url)
        assert code == 0, err
        assert "answers as the new version does" in said
        assert sorted(loaded) == sorted((*kept, f"clawback-v{number}"))


def test_a_wrong_base_is_refused_with_both_names(improved: Home, run: Run, play: Play) -> None:
    url = play(PlayedVllm)
    code, _, err = run("publish", "vllm", "--url", url, "--base", "some/other-model")
    assert code == 1
    assert "some/other-model" in err
    assert "embedded" in err
    assert "POST /v1/load_lora_adapter" not in play.made[0].RequestHandlerClass.seen  # type: ignore[attr-defined]


def test_ollama_gets_a_merged_file_with_the_bases_own_template_and_parameters(
    improved: Home, run: Run, play: Play, in_ollama: str, base_gguf: Path
) -> None:
    url = play(PlayedOllama)
    server = play.made[0].RequestHandlerClass  # type: ignore[attr-defined]
    code, said, err = run("publish", "ollama", "--url", url, "--base", "small:1b")
    assert code == 0, err
    assert "'small-clawback:1b' answers as the new version does" in said
    assert list(server.loaded) == ["small-clawback:1b"], "the name that it had until it had answered is gone"
    made = server.made["small-clawback-next:1b"]
    assert made["template"] == "{{ .Prompt }}"
    assert made["parser"] == "p"
    assert made["parameters"] == {"stop": ["<|x|>", "<|y|>"], "temperature": 0.5}
    [digest] = made["files"].values()
    assert digest != in_ollama
    assert len(server.blobs[digest]) == base_gguf.stat().st_size
    assert not list(improved.root.glob(".publish-*"))
    code, _, err = run("publish", "ollama", "--url", url, "--base", "none")
    assert code == 1
    assert "ollama pull none" in err


@pytest.mark.slow
def test_lm_studio_gets_a_merged_file_and_keeps_the_newest_alone(
    improved: Home, run: Run, play: Play, base_gguf: Path, tmp_path: Path
) -> None:
    url, models = play(PlayedLmStudio), tmp_path / "models"
    old, other = models / "clawback" / "clawback-v99", models / "clawback" / "verse-v1"
    for folder in (old, other):
        folder.mkdir(parents=True)
    where = ("lm-studio", "--base", str(base_gguf), "--output", str(models), "--url", url)
    code, said, err = run("publish", *where)
    assert code == 0, err
    assert "answers as the new version does" in said
    file = models / "clawback" / "clawback-v1" / "clawback-v1.gguf"
    assert file.stat().st_size == base_gguf.stat().st_size
    assert (old.exists(), other.exists()) == (False, True)


@pytest.mark.slow
def test_a_file_alone_is_written_and_says_that_nobody_was_asked(
    improved: Home, run: Run, base_gguf: Path, tmp_path: Path
) -> None:
    out = tmp_path / "me.gguf"
    code, said, err = run("publish", "gguf", "--output", str(out), "--base", str(base_gguf))
    assert code == 0, err
    assert "no program was asked" in " ".join(said.split())
    assert out.stat().st_size == base_gguf.stat().st_size
    written = out.read_bytes()
    code, _, err = run("publish", "gguf", "--output", str(out), "--base", str(base_gguf))
    assert code == 2, "nothing is overwritten"
    assert out.read_bytes() == written
    assert [path.name for path in tmp_path.iterdir() if "me.gguf" in path.name] == ["me.gguf"]


@pytest.mark.slow
def test_a_base_of_safetensors_needs_a_file_or_the_converter(
    improved: Home, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "me.gguf"
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = run("publish", "gguf", "--output", str(out))
    assert code == 1
    assert "convert_hf_to_gguf.py is needed" in " ".join(err.split())
    program = tmp_path / "convert_hf_to_gguf.py"
    program.write_text(
        "import pathlib, sys\n"
        "assert pathlib.Path(sys.argv[1], 'model.safetensors').is_file()\n"
        "pathlib.Path(sys.argv[sys.argv.index('--outfile') + 1]).write_bytes(b'no GGUF')\n"
    )
    program.chmod(0o755)
    code, _, err = run("publish", "gguf", "--output", str(out))
    assert code == 1
    assert "is no GGUF file" in " ".join(err.split())
    assert "It was undone" in " ".join(err.split())
    assert not out.exists()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        pytest.param(PlayedVllm, ("vllm",), marks=pytest.mark.slow),
        (PlayedOllama, ("ollama", "--base", "small:1b")),
        pytest.param(PlayedLmStudio, ("lm-studio", "--base", "ollama:small:1b"), marks=pytest.mark.slow),
    ],
)
def test_a_server_that_says_yes_and_loads_nothing_is_found_out_and_it_is_undone(
    improved: Home, run: Run, play: Play, kind: Any, options: tuple[str, ...], in_ollama: str, tmp_path: Path
) -> None:
    class Liar(kind):  # type: ignore[misc]
        honest = False

    url = play(Liar)
    folder = ("--output", str(tmp_path / "models")) if options[0] == "lm-studio" else ()
    code, _, err = run("publish", *options, *folder, "--url", url)
    assert code == 1
    words = " ".join(err.split())
    assert "does not answer as the new version does" in words
    assert "It was undone" in words
    server = play.made[0].RequestHandlerClass  # type: ignore[attr-defined]
    if options[0] != "lm-studio":
        assert not server.loaded
    assert not list((tmp_path / "models").rglob("*.gguf"))


def test_what_cannot_be_published_is_said(improved: Home, run: Run) -> None:
    for options, sentence in (
        (("nowhere",), "there are: merged"),
        (("merged",), "--output"),
        (("vllm",), "--url"),
        (("ollama",), "--base"),
        (("gguf",), "--output"),
        (("vllm", "--url", "http://127.0.0.1:9", "--version", "0"), "The base model"),
    ):
        code, _, err = run("publish", *options)
        assert code == 2
        assert sentence in err
    code, _, err = run("publish", "vllm", "--url", "http://127.0.0.1:9")
    assert code == 1
    assert "Is the server running?" in err


def test_a_probe_judges_by_what_both_would_say() -> None:
    probe = Probe("?", base="Sorry. It is long.", tuned="Sorry. - short")
    assert "answers as" in probe.judge("Sorry. - short", "it")
    for said in ("Sorry. It is long.", "Sorry. ", "", "Something else"):
        with pytest.raises(ClawbackError):
            probe.judge(said, "it")


MLX = Path(os.environ.get("CLAWBACK_TEST_CACHE", Path(__file__).parents[2] / ".venv" / "agents")) / "mlx"


@pytest.mark.slow
def test_a_real_mlx_lm_answers_as_the_version_does(improved: Home, run: Run, tmp_path: Path) -> None:
    if not (MLX / "bin" / "python").exists():
        steps = [
            [sys.executable, "-m", "venv", str(MLX)],
            [str(MLX / "bin" / "pip"), "install", "-q", "mlx[cpu]", "mlx-lm"],
        ]
        if any(subprocess.run(step, capture_output=True).returncode for step in steps):
            pytest.skip("mlx-lm could not be installed")
    out, base = tmp_path / "mlx", Path(engine.load("embedded").model.name_or_path)
    assert run("publish", "mlx", "--output", str(out), "--base", str(base))[0] == 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [
            str(MLX / "bin" / "python"),
            "-m",
            "mlx_lm",
            "server",
            "--model",
            str(base),
            "--adapter-path",
            str(out),
            "--port",
            str(port),
        ],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=(tmp_path / "log").open("w"),
    )
    try:
        deadline = time.monotonic() + 120
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert server.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline
            threading.Event().wait(0.2)
        again = tmp_path / "again"
        code, said, err = run(
            "publish", "mlx", "--output", str(again), "--base", str(base), "--url", f"http://127.0.0.1:{port}"
        )
        assert code == 0, f"{err}\n{(tmp_path / 'log').read_text()}"
        assert "answers as the new version does" in said
    finally:
        server.terminate()
        server.wait(timeout=30)
