"""Runs `skillhouse` and notes which of its functions are entered: `walk_tracer.py OUT ARGUMENT...`.

Each thread is watched from its start. What a module's import calls does not count, whichever
request it happens in. SIGUSR2 writes what was entered since the last time to OUT.1,
OUT.2 and so on, and begins again; the end of the program writes the rest.
"""

from __future__ import annotations

import atexit
import importlib.metadata
import itertools
import json
import os
import signal
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType

OUT = sys.argv[1]
entered: dict[CodeType, None] = {}
importing = threading.local()
"""`depth`: bodies of modules that this thread is running."""
parts = itertools.count(1)


def note(
    frame: FrameType,
    event: str,
    _: object,
    noted: dict[CodeType, None] = entered,
    state: threading.local = importing,
) -> None:
    """Note a call, unless a module's body made it; whoever reads the parts decides what counts."""
    # Arguments, because names of the module are gone before the last finalizers run.
    if event not in ("call", "return"):
        return
    depth = getattr(state, "depth", 0)
    if frame.f_code.co_name == "<module>":
        state.depth = depth + (1 if event == "call" else -1)
    elif event == "call" and not depth:
        noted[frame.f_code] = None


def write(*_: object) -> None:
    """Write what was entered, and begin again."""
    codes = list(entered)
    entered.clear()
    rows = [[code.co_filename, code.co_name] for code in codes]
    # Whoever waits for the file must find all of it.
    partial = Path(f"{OUT}.part")
    partial.write_text(json.dumps(rows), encoding="utf-8")
    partial.rename(f"{OUT}.{next(parts)}")


if __name__ == "__main__":
    # The program as it is installed; where it comes from says PYTHONPATH.
    programs = importlib.metadata.entry_points(group="console_scripts", name="skillhouse")
    main = next(iter(programs)).load()
    sys.argv[:] = ["skillhouse", *sys.argv[2:]]
    signal.signal(signal.SIGUSR2, write)
    atexit.register(write)
    os.environ.pop("PYTHONPATH", None)
    threading.setprofile(note)
    sys.setprofile(note)
    sys.exit(main())
