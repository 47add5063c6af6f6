"""Coverage-guided: Atheris (libFuzzer) on the decoders that strangers reach, one after the other or one alone.

Atheris is no dependency of the project; where it is not installed, this says so and ends with status 1:

    pip install atheris && python -m tests.fuzz.guided sasl -max_total_time=150

The first argument names a decoder of `decoders.py`, the others are libFuzzer's. What it finds is a file, crash-…, which
it plays again where it is named as an argument.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

INSTRUMENTED = [
    "kraft.protocol",
    "kraft.security",
    "kraft.network",
    "kraft.http.login",
    "quorum.rpc.request_door",
    "joserfc",
]


def main(arguments: list[str]) -> None:
    """Fuzzes until libFuzzer ends the process."""
    try:
        import atheris
    except ImportError:
        sys.exit("Atheris is not installed here: pip install atheris (Linux, or macOS with LLVM's clang)")
    with atheris.instrument_imports(include=INSTRUMENTED):
        from tests.fuzz.decoders import DECODERS, seeds
    name, *options = arguments or [""]
    if name not in DECODERS:
        sys.exit(f"say which decoder: {', '.join(DECODERS)}")
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(seeds(name)):
            (Path(folder) / f"seed-{number}").write_bytes(seed)
        is_replay = any(not option.startswith("-") for option in options)
        atheris.Setup([sys.argv[0], *options, *([] if is_replay else [folder])], DECODERS[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
