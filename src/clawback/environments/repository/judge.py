"""Runs tests in a box and reports their results. Run as ``python -I -S judge.py``; its instructions come on stdin.

The tests run in this process, together with what the policy wrote; so neither printed output nor an exit code
counts by itself. The report carries a secret word that came on stdin; and among the tests are some that must
fail: if they pass, the whole report is void.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> int:
    told = json.loads(sys.stdin.buffer.read())
    out = os.dup(1)
    word, wanted, failing = told["word"], set(told["tests"]), set(told["canaries"])
    os.chdir(told["tree"])
    sys.path[:0] = told["packages"]
    import pytest

    sys.path[:0] = [os.path.join(told["tree"], part) for part in told["source"]]  # noqa: PTH118
    passed: set[str] = set()
    failed: set[str] = set()

    class Recorder:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.outcome == "failed":
                failed.add(report.nodeid)
            elif report.when == "call" and report.outcome == "passed":
                passed.add(report.nodeid)

    words = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        "addopts=",
        "--rootdir",
        told["tree"],
        f"--junitxml={told['junit']}",
    ]
    pytest.main([*words, *told["tests"], *told["canaries"]], plugins=[Recorder()])
    good = passed - failed
    answer = {"word": word, "passed": sorted(good & wanted), "caught": sorted(failed & failing)}
    os.write(out, f"\n{json.dumps(answer)}\n".encode())
    return 0 if wanted <= good and failing <= failed else 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
