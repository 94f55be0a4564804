"""The journal of a search: every paid call, one JSON line each, so that a resumed search pays for nothing twice.

A search depends only on its seed and the results of its calls. So repeating it from the start, with every
call that is in the journal answered from it, leads to the place where it was stopped: there is no other state
to keep. A line that a crash cut off is the last one; it is dropped, and its call is made again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clawback.errors import UsageError
from clawback.files import append_line
from clawback.prompts.backends import NOTHING, Usage
from clawback.prompts.prompt import Prompt
from clawback.prompts.search_types import Example, Outcome, Proposal, ProposalRequest
from clawback.records import JsonObject

FORMAT = 1


class Journal:
    """Outcomes by (prompt, example, how many times before) and proposals by request; in a file where a path is given."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.outcomes: dict[str, Outcome] = {}
        self.proposals: dict[str, Proposal] = {}
        if path is not None and path.exists():
            self._read(path)

    def outcome(self, prompt: Prompt, example: Example, again: int = 0) -> Outcome | None:
        return self.outcomes.get(_tried(prompt, example, again))

    def proposal(self, request: ProposalRequest) -> Proposal | None:
        return self.proposals.get(request.fingerprint)

    def keep_outcome(self, prompt: Prompt, example: Example, again: int, outcome: Outcome) -> None:
        key = _tried(prompt, example, again)
        self.outcomes[key] = outcome
        self._write({"tried": key, **outcome.to_dict()})

    def keep_proposal(self, request: ProposalRequest, proposal: Proposal) -> None:
        self.proposals[request.fingerprint] = proposal
        self._write({"asked": request.fingerprint, **proposal.to_dict()})

    @property
    def paid(self) -> Usage:
        """All that its calls have cost."""
        tried = (one.usage for one in self.outcomes.values())
        return sum((one.usage for one in self.proposals.values()), sum(tried, NOTHING))

    def to_dict(self) -> JsonObject:
        """The whole state as JSON values, for those who keep it elsewhere than in a file."""
        return {
            "format": FORMAT,
            "outcomes": {key: one.to_dict() for key, one in self.outcomes.items()},
            "proposals": {key: one.to_dict() for key, one in self.proposals.items()},
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Journal:
        """Raises ``UsageError`` where it is none of ours."""
        made = cls()
        try:
            if state["format"] != FORMAT:
                raise ValueError(f"its format is {state['format']!r}")
            made.outcomes = {key: Outcome.from_dict(one) for key, one in state["outcomes"].items()}
            made.proposals = {key: Proposal.from_dict(one) for key, one in state["proposals"].items()}
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise UsageError(f"This is no state of a search over prompts: {error}.") from error
        return made

    def _read(self, path: Path) -> None:
        lines = path.read_text("utf-8").split("\n")
        for number, line in enumerate(lines, 1):
            if not line:
                continue
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                if number == len(lines):  # no newline after it: the crash came in the middle of it
                    os.truncate(path, len("\n".join(lines[:-1]).encode()) + 1 if number > 1 else 0)
                    return
                raise UsageError(f"Line {number} of the journal {path} is damaged. Remove the file to start anew.") from error  # fmt: skip

    def _take(self, state: Mapping[str, Any]) -> None:
        if "tried" in state:
            self.outcomes[str(state["tried"])] = Outcome.from_dict(state)
        elif "asked" in state:
            self.proposals[str(state["asked"])] = Proposal.from_dict(state)
        else:
            raise ValueError("neither a try nor a proposal")

    def _write(self, line: Mapping[str, Any]) -> None:
        if self.path is not None:
            append_line(self.path, json.dumps(line))


def _tried(prompt: Prompt, example: Example, again: int) -> str:
    return f"{prompt.id}:{example.id}:{example.fingerprint}:{again}"
