"""The program of a rewritten command: it runs `run_client.py`, as Python keeps it compiled.

It is a script by `python -I -S`, as `hook_client.py` is.
"""

from _frozen_importlib_external import SourceFileLoader

NAME = "run_client"

if __name__ == "__main__":
    loader = SourceFileLoader(NAME, f"{__file__.rpartition('/')[0]}/{NAME}.py")
    exec(loader.get_code(NAME) or "raise SystemExit(2)", {"__name__": "__main__"})  # noqa: S102 - a module of ours.
