"""Notes in a process that a test started which profile was in force there; see scripts/req_plugin.py.

Python imports a module of this name at its start. Nothing of the package is imported here.
"""

import os
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

PLACES = {
    ("policy.py", "Policy.__init__"): "policy",
    ("agent_view.py", "AgentView.__init__"): "view",
    ("code_service.py", "SkillCode.tools"): "code",
    ("build_index.py", "discover"): "scan",
    ("skills_manager.py", "SkillsManager.__init__"): "manager",
}
ABOUT_OTHERS = ("project.py", "comparison.py")
"""Modules that scan by the profiles of other clients, which are then not in force."""
MARK = f"{os.sep}skillhouse{os.sep}"


def _known(code: CodeType) -> str:
    file = code.co_filename
    if MARK not in file:
        return ""
    return PLACES.get((os.path.basename(file), code.co_qualname), "")


class ProfileWatch:
    """Says which profile is in force, and whether its skills are where its design has them.

    A word is `NAME`, or `NAME@own` and `NAME@given` once skills were seen: in a root of the profile, or
    in one that was named by hand.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._kinds: dict[CodeType, str] = {}

    def called(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        kind = self._kinds.get(code)
        if kind is None:
            kind = self._kinds[code] = _known(code)
        if kind:
            for word in _words(kind, frame):
                self._note(word)


def _words(kind: str, frame: FrameType) -> list[str]:
    values: dict[str, Any] = frame.f_locals
    caller = "" if frame.f_back is None else frame.f_back.f_code.co_filename
    if kind == "manager":
        given = values["profile"]
        return [given if isinstance(given, str) else given.name]
    if kind in ("policy", "scan"):
        if kind == "scan" and caller.endswith(ABOUT_OTHERS):
            return []
        profile = values["profile"]
        return [profile if isinstance(profile, str) else profile.name]
    own = values["self"]
    if kind == "view":
        name, config = values["policy"].profile.name, values["config"]
        roots = [str(skill.root) for skill in values["index"].skills if skill.scope != "builtin"]
    else:
        name, config = own._profile.name, own._config  # noqa: SLF001
        roots = [os.path.dirname(result.directory) for scope, result in values["found"] if scope != "builtin"]
    given = {os.path.realpath(root) for root in config.roots}
    return list({f"{name}@{'given' if os.path.realpath(root) in given else 'own'}" for root in roots})


def install(path: str) -> None:
    """Append each word to a file, from now on."""
    seen: set[str] = set()

    def note(word: str) -> None:
        if word not in seen:
            seen.add(word)
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"{word}\n")

    called = ProfileWatch(note).called
    threading.setprofile(called)
    sys.setprofile(called)


if os.environ.get("REQ_CHILD"):
    install(os.environ["REQ_CHILD"])
