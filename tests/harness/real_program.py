"""Run by test_real_programs.py where only loopback exists: NAME PROGRAM FOLDER. A program works on repository tasks, first with right replies, then in training."""

import json
import os
import sys
from pathlib import Path


def main(name: str, program: str, folder: str) -> None:
    path = os.pathsep.join([str(Path(program).parent), os.environ["PATH"]])
    home = {"HOME": folder, "CLAWBACK_HOME": f"{folder}/clawback", "XDG_CONFIG_HOME": f"{folder}/config"}
    os.environ.update(PATH=path, **home)
    from benchmarks import harness_agents

    results = []
    for number, words in enumerate(
        (
            ["--replies", "scripted", "--held-out", "3"],
            ["--held-out", "2", "--groups", "2", "--rounds", "1", "--steps", "1", "--turns", "2"],
        )
    ):
        run = Path(folder) / str(number)
        run.mkdir()
        results.append(harness_agents.run(harness_agents.parsed([name, *words]), run))
    print(json.dumps(results))


main(*sys.argv[1:])
