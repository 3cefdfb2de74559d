"""The part of the self-test that a use of the sandbox needs, unless an earlier one has passed.

The probes are loaded only where something is tested: most calls find what is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from skillhouse import sandbox
from skillhouse.floor import structs
from skillhouse.sandbox.code_call import Language
from skillhouse.sandbox.kept_tests import KeptTests
from skillhouse.sandbox.status import ProbeResult, SandboxLevel, SandboxStatus, detect


class CellTests(Protocol):
    """The self-tests of what runs the code of skills."""

    async def self_test(
        self, *, least: SandboxLevel, languages: Sequence[Language]
    ) -> SandboxStatus: ...

    async def language_test(self, found: SandboxStatus, language: Language) -> SandboxStatus: ...

    def installed(self) -> tuple[Language, ...]: ...


COMMANDS = "commands"
"""The part of the self-test that every use of the sandbox needs."""


async def needed_test(
    kept: KeptTests,
    language: Language | None,
    *,
    before: SandboxStatus | None = None,
    least: SandboxLevel = SandboxLevel.LANDLOCK,
    cells: CellTests | None = None,
) -> SandboxStatus:
    """Return the level for commands, and for cells of a language; test only what is not kept.

    Args:
        kept: The results of earlier processes.
        language: Of the code that is to run; None for commands only.
        before: What this process has tested already, whose level is not found again.
        least: The weakest level that the operator accepts.
        cells: Tests the cells of languages; None where none are installed.
    """
    facts = kept.facts()
    found = before
    if found is None:
        found = await detect(least=least, is_version_known=kept.has_bubblewrap(facts))
    known = {} if found.level is SandboxLevel.NONE else kept.passed(facts, found.level)
    if before is None:
        if COMMANDS not in known:
            if language is None or cells is None:
                tested = await sandbox.self_test(least=least)
            else:
                tested = await cells.self_test(least=least, languages=(language,))
            kept.keep(facts, tested.level, _parts(tested))
            return tested
        found = structs.replace(found, probes=known[COMMANDS])
    if language is None or found.level is SandboxLevel.NONE:
        return found
    if language in known:
        return structs.replace(found, probes=(*found.probes, *known[language]))
    if cells is None or language not in cells.installed():
        return found
    tested = await cells.language_test(found, language)
    kept.keep(facts, tested.level, _parts(tested))
    return tested


async def kept_test(
    kept: KeptTests, language: Language, *, least: SandboxLevel
) -> SandboxStatus | None:
    """Return the level for commands and cells of a language; None unless both tests are kept.

    Nothing is tested; arguments as of `needed_test`.
    """
    facts = kept.facts()
    if not kept.has_bubblewrap(facts):
        return None
    found = await detect(least=least, is_version_known=True)
    known = kept.passed(facts, found.level)
    if COMMANDS not in known or language not in known:
        return None
    return structs.replace(found, probes=(*known[COMMANDS], *known[language]))


def _parts(status: SandboxStatus) -> Mapping[str, tuple[ProbeResult, ...]]:
    """Return the probes of commands, and those of the cells of each language."""
    parts: dict[str, tuple[ProbeResult, ...]] = {}
    for probe in status.probes:
        language, mark, _ = probe.name.partition("_cell_")
        name = language if mark else COMMANDS
        parts[name] = (*parts.get(name, ()), probe)
    return parts
