"""The program of a hook's entry: it runs `judge_client.py`, as Python keeps it compiled.

It is a script by `python -I -S`, and short: Python compiles a script at each start, for which a
call of the agent waits.
"""

from _frozen_importlib_external import SourceFileLoader

NAME = "judge_client"

if __name__ == "__main__":
    loader = SourceFileLoader(NAME, f"{__file__.rpartition('/')[0]}/{NAME}.py")
    exec(loader.get_code(NAME) or "raise SystemExit(2)", {"__name__": "__main__"})  # noqa: S102 - a module of ours.
