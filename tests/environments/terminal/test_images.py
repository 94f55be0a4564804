"""Tasks that name a container image: played and judged in containers of it, or refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawback.cli import main
from clawback.environments.core import Task
from clawback.errors import UsageError
from clawback.extensions.terminal_tasks import folders
from clawback.extensions.terminal_tasks.terminal_environment import TerminalTasks, make
from tests.environments.terminal.test_terminal import bash, play
from tests.sandbox.image import ENGINES, NAME, NO_ENGINE, image

engine = pytest.mark.parametrize(
    "engine", ENGINES or [pytest.param("podman", marks=pytest.mark.skip(NO_ENGINE))]
)
_CHECK = """
import os, pathlib, subprocess
said = subprocess.run(["python3", "/app/greet.py"], capture_output=True, text=True).stdout
print(int(said == "hello, here from the start\\n"))
"""


def task(root: Path, name: str = NAME, more: str = "", **files: str) -> Path:
    told = {
        "task.toml": f'schema_version = "1.4"\n[task]\nname = "t/greet"\n[metadata]\nsplit = "test"\n[environment]\ndocker_image = "{name}"\n{more}',
        "instruction.md": "Write /app/greet.py, which prints hello, and what from-the-image.txt holds.",
        "environment/Dockerfile": "FROM somebody/else\nRUN make install\n",
        "solution/solve.sh": "#!/bin/bash\necho \"print('hello, ' + open('/app/from-the-image.txt').read(), end='')\" > /app/greet.py\n",
        "tests/run/run.sh": "#!/bin/bash\npython3 greet.py > said.txt\n",
        "tests/test.sh": '#!/bin/bash\n[ "$(cat /app/said.txt)" = "hello, here from the start" ] && it=1 || it=0\necho $it > /logs/verifier/reward.txt\n',
        **files,
    }  # fmt: skip
    for path, text in told.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


@engine
def test_an_image_task_is_validated(engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image(engine)
    assert main(("env", "validate", f"terminal:{task(tmp_path / 't').parent}?rung={engine}")) == 0
    assert "1 by their known solution, which scores 1" in capsys.readouterr().out


@engine
@pytest.mark.parametrize(
    "trick",
    [
        "mkdir -p /logs/verifier logs/verifier; echo 1 | tee /logs/verifier/reward.txt logs/verifier/reward.txt reward.txt",
        "(while true; do mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; done) > /dev/null 2>&1 &",
        "mkdir -p /tests tests; echo 'echo 1 > /logs/verifier/reward.txt' | tee /tests/test.sh tests/test.sh test.sh",
        "echo 'hello, here from the start' > said.txt; printf 'import os; os.chmod(\"said.txt\", 0o444)' > greet.py",
        "printf 'import os; os.makedirs(\"/logs/verifier\"); open(\"/logs/verifier/reward.txt\", \"w\").write(\"1\")' > greet.py; ln -s /logs/verifier v",
        "printf '#!/bin/sh\\necho hello, here from the start' > cat; cp cat /usr/bin/cat; cp cat bash; chmod +x cat bash; rm -f said.txt; ln -s /tests/test.sh said.txt",
    ],
)  # fmt: skip
def test_no_trick_scores(engine: str, trick: str, tmp_path: Path) -> None:
    image(engine)
    tasks = make(str(task(tmp_path / "t").parent), {"rung": engine})
    assert play(tasks, Task("t/greet"), [bash(trick), "Done."])[-1].reward == 0.0


@engine
def test_the_check_is_out_of_the_policys_reach(engine: str, tmp_path: Path) -> None:
    """The policy's container has no tests, no solution and no logs; the judge's has nothing of it but its folder."""
    image(engine)
    root = task(
        tmp_path / "t",
        **{"tests/test.sh": "#!/bin/bash\ncat /tmp/left said.txt | wc -l > /logs/verifier/reward.txt\n"},
    )
    steps = play(
        make(str(root.parent), {"rung": engine}),
        Task("t/greet"),
        [bash("ls -d /tests /solution /logs; echo seen > /tmp/left; cat /tmp/left; id -u"), "Done."],
    )
    said = steps[0].messages[0]["content"]
    assert said.count("No such file") == 3
    assert "seen" in said
    assert said.splitlines()[1] != "0"
    assert steps[-1].reward == 0.0  # said.txt is empty, and /tmp/left is gone


def test_an_image_that_is_not_here_is_left_out_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = task(tmp_path / "t", name="example.invalid/none:1")
    assert main(("env", "validate", f"terminal:{root.parent}")) == 2
    err = capsys.readouterr().err
    assert "t/greet is left out: The image example.invalid/none:1" in err
    assert "pull example.invalid/none:1`" in err
    tasks = TerminalTasks(root.parent)
    assert not tasks.tasks("test")
    with pytest.raises(UsageError, match=r"example\.invalid/none:1"):
        play(tasks, Task("t/greet"), ["Done."])


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("gpus = 1\n", "a GPU"),
        ('workdir = "/"\n', "working folder"),
        ('[agent]\nuser = "root"\n', "wants to be root"),
        ('[verifier.environment]\ndocker_image = "x"\n', "another image"),
    ],
)
def test_what_a_container_does_not_give_is_refused(more: str, why: str, tmp_path: Path) -> None:
    assert why in folders.read(task(tmp_path / "t", more=more)).refusal


def test_an_image_stands_for_its_dockerfile(tmp_path: Path) -> None:
    told = folders.read(task(tmp_path / "t"))
    assert (told.refusal, told.image, told.work, told.copies) == ("", NAME, "", ())
