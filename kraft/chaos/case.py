"""A case: a scenario that once broke a promise, as a file that replays it.

The corpus is a folder of cases. A case stays after its bug is fixed; from then on it must pass. `kraft chaos shrink`
writes it; `kraft chaos simulate --case` and the tests of the corpus read it. The file is one JSON object: `format`,
`oracle` (the promise), `text` (its judge's words), `commit` (at which it was found) and `scenario`, as
`kraft.chaos.scenario` writes it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from kraft.chaos.scenario import Scenario, ScenarioError

FORMAT = 1
CORPUS = Path("tests", "chaos", "corpus")
"""The corpus within a checkout."""


@dataclass(frozen=True)
class Case:
    """A scenario, and the violation with which it was found."""

    scenario: Scenario
    oracle: str
    text: str
    commit: str

    def to_json(self) -> str:
        """The text from which `from_json` makes an equal case."""
        document = {
            "format": FORMAT,
            "oracle": self.oracle,
            "text": self.text,
            "commit": self.commit,
            "scenario": json.loads(self.scenario.to_json()),
        }
        return json.dumps(document, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Case:
        """Raises ScenarioError."""
        try:
            document = json.loads(text)
            if not isinstance(document, dict) or "format" not in document:
                raise ScenarioError("this is no case: a case is a JSON object with a format")
            if document["format"] != FORMAT:
                raise ScenarioError(f"a case of format {document['format']}; this is format {FORMAT}")
            return cls(
                Scenario.from_json(json.dumps(document["scenario"])),
                str(document["oracle"]),
                str(document["text"]),
                str(document["commit"]),
            )
        except ScenarioError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ScenarioError(f"this is no case; {type(error).__name__}: {error}") from error

    @classmethod
    def load(cls, path: Path) -> Case:
        """Raises OSError and ScenarioError."""
        return cls.from_json(path.read_text(encoding="utf-8"))

    def default_path(self, working_folder: Path) -> Path:
        """A new file in the corpus of the checkout around the folder, or in the folder itself."""
        around = (folder / CORPUS for folder in (working_folder, *working_folder.parents))
        folder = next((corpus for corpus in around if corpus.is_dir()), working_folder)
        name = f"seed-{self.scenario.seed}-{self.oracle}"
        path, number = folder / f"{name}.json", 1
        while path.exists():
            number += 1
            path = folder / f"{name}-{number}.json"
        return path
