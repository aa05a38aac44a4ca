"""A Dockerfile as data: its stages, and the words of each instruction."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Stage:
    """What stands between one FROM and the next."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def last(self, instruction: str) -> str:
        """The argument of the last such instruction."""
        return [text for name, text in self.steps if name == instruction][-1]

    def all(self, instruction: str) -> list[str]:
        """The arguments of all such instructions, in order."""
        return [text for name, text in self.steps if name == instruction]


def read_dockerfile(path: Path) -> list[Stage]:
    """Read the stages; an instruction that Docker does not know is an error."""
    known = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "USER", "CMD", "ENV", "LABEL", "EXPOSE"}
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    stages: list[Stage] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        instruction, _, argument = line.partition(" ")
        assert instruction in known, line
        if instruction == "FROM":
            base, _, name = argument.partition(" AS ")
            stages.append(Stage(name, base))
        elif stages:
            stages[-1].steps.append((instruction, argument))
        else:
            assert instruction == "ARG", line
    return stages
