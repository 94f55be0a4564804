"""A real llama.cpp for the tests: ``python tests/publishers/llama_cpp.py`` builds it once (about ten minutes on two cores).

It comes out of the sources inside the ``llama-cpp-python`` package, and is kept beside the real agents.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VERSION = "0.3.36"
CACHE = Path(os.environ.get("CLAWBACK_TEST_CACHE", Path(__file__).parents[2] / ".venv" / "agents"))
HERE = CACHE / "llama.cpp"
SERVER = HERE / "build" / "bin" / "llama-server"
MISSING = "no llama.cpp here: `python tests/publishers/llama_cpp.py` builds one"


def build() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "llama-cpp-python"]
    subprocess.run([*download, "-d", str(CACHE), f"llama-cpp-python=={VERSION}"], check=True)
    with tarfile.open(CACHE / f"llama_cpp_python-{VERSION}.tar.gz") as packed:
        packed.extractall(CACHE, filter="data")
    source = CACHE / f"llama_cpp_python-{VERSION}" / "vendor" / "llama.cpp"
    off = [
        f"-DLLAMA_{what}=OFF"
        for what in ("USE_PREBUILT_UI", "OPENSSL", "CURL", "BUILD_TESTS", "BUILD_EXAMPLES")
    ]
    subprocess.run(["cmake", "-B", "build", "-DCMAKE_BUILD_TYPE=Release", *off], cwd=source, check=True)
    subprocess.run(["cmake", "--build", "build", "--target", "llama-server", "-j2"], cwd=source, check=True)
    # What its converter needs besides what we have.
    wants = ["--target", str(source / "python"), "sentencepiece"]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *wants], check=True)
    HERE.symlink_to(source)


def to_gguf(model: Path, out: Path, *more: str) -> None:
    """By llama.cpp's own converter, told that a tokenizer of our own cuts words as GPT-2's does."""
    program = (
        "import sys, runpy; sys.path[:0] = sys.argv[1:3]; from conversion.base import TextModel; "
        "TextModel.get_vocab_base_pre = lambda self, tokenizer: 'gpt-2'; script = sys.argv[1] + '/' + sys.argv[3]; "
        "sys.argv = [script, *sys.argv[4:]]; runpy.run_path(script, run_name='__main__')"
    )
    words = [
        str(HERE.resolve()),
        str(HERE.resolve() / "python"),
        *(more or ("convert_hf_to_gguf.py",)),
        str(model),
        "--outfile",
        str(out),
        "--outtype",
        "f32",
    ]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


@contextmanager
def server(log: Path, *options: str) -> Iterator[str]:
    """A running llama-server; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with log.open("w") as file:
        process = subprocess.Popen(
            [str(SERVER), "--host", "127.0.0.1", "--port", str(port), "-t", "1", "-c", "1024", *options],
            stdout=file,
            stderr=file,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(log.parent),
                "LLAMA_CACHE": str(log.parent / "cache"),
            },
        )
    try:
        for _ in range(600):
            if not socket.socket().connect_ex(("127.0.0.1", port)):
                break
            assert process.poll() is None, log.read_text()[-3000:]
            threading.Event().wait(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


if __name__ == "__main__":
    build()
