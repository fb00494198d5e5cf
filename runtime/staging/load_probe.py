"""Loads config and tokenizer of a model from its folder, as training will; run by itself as `python -c`.

Therefore it imports nothing of jobspec. The parent is `loading`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, Sequence

TEXT = "What is 2 + 2?"


def load(folder: str) -> Dict[str, Any]:
    """What was loaded, by class; `absent` says why transformers cannot be asked, `failed` what fails."""
    try:
        import transformers
    except Exception as problem:  # noqa: BLE001 - a broken package may raise anything
        return {"absent": f"{type(problem).__name__}: {problem}"}
    done: Dict[str, Any] = {"transformers": transformers.__version__}
    for name in ("AutoConfig", "AutoTokenizer"):
        try:
            # The run executes the model's own code anyway.
            made = getattr(transformers, name).from_pretrained(
                folder, local_files_only=True, trust_remote_code=True
            )
            # Without its files transformers 5 makes an empty tokenizer, and says nothing.
            if name == "AutoTokenizer" and not made(TEXT)["input_ids"]:
                raise ValueError(f"the tokenizer, of {len(made)} tokens, makes none of {TEXT!r}")
        except Exception as problem:  # noqa: BLE001 - the model's own code may raise anything
            return {**done, "failed": name, "error": f"{type(problem).__name__}: {problem}"[-2000:]}
        done[name] = type(made).__name__
    return done


def main(argv: Sequence[str]) -> None:
    """`FD FOLDER`: write one JSON line to the open file FD, since modules print to stdout."""
    sys.path[:] = [entry for entry in sys.path if entry]
    with os.fdopen(int(argv[0]), "w", encoding="utf-8") as out:
        out.write(json.dumps(load(argv[1])))
    sys.stdout.flush()
    os._exit(0)  # exit handlers are not part of the proof


if __name__ == "__main__":
    main(sys.argv[1:])
