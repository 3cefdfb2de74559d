"""The verbs, and the parser of each: a verb's module is imported when the verb is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from skillhouse.extension import Extension, Verb

VERBS = {
    "up": ("extension:server", "serve the status page on this machine"),
    "list": ("list_verb", "list the skills that an agent sees here"),
    "catalog": ("browse", "print the list of skills that a model gets, or one for a request"),
    "show": ("describe", "show one skill: metadata, files, findings, permission"),
    "search": ("browse", "rank the skills for a request"),
    "hint": ("hint", "print the hint that a coding agent would get beside a prompt"),
    "load": ("browse", "print the body of a skill"),
    "invoke": ("calls", "start a skill as a slash command does, with arguments"),
    "files": ("describe", "list the other files of a skill"),
    "new": ("manage", "create a skill of your own, or of this project"),
    "install": ("install", "install skills from GitHub, Git, an archive, a server or a directory"),
    "update": ("update", "bring installed skills up to date, or one of them"),
    "outdated": ("update", "list the installed skills that have another version at their source"),
    "rollback": ("update", "put back the version of a skill before its last update"),
    "uninstall": ("installed", "remove an installed skill"),
    "info": ("installed", "show where an installed skill is from, and how it is now"),
    "pin": ("installed", "keep an installed skill at its version"),
    "verify": ("installed", "compare installed skills with what was installed, or a signature"),
    "lock": ("lock", "show the locks of installed skills, or fix one after a merge of git"),
    "publish": ("publish", "publish a skill to a repository"),
    "skill": ("install", "install a skill, by the words of other programs"),
    "pack": ("installed", "make an archive of one skill, the same bytes everywhere"),
    "enable": ("manage", "let agents see a skill again"),
    "disable": ("manage", "hide a skill from every agent"),
    "delete": ("delete", "delete a skill of yours or of this project, or put it back"),
    "validate": ("check", "check skills against the specification, for authors"),
    "doctor": ("clients", "show which client sees which skill, and why others don't"),
    "profiles": ("clients", "list, show and compare how clients treat skills"),
    "export": ("client_files", "write skills into the folders that other clients read"),
    "trust": ("project_trust", "let this project's skills be read"),
    "chat": ("extension:chat", "chat with a model that has the skills"),
    "bot": ("extension:channels", "let people talk with it in Telegram and Discord"),
    "rehearse": ("check", "walk a request through every step without a model"),
    "tools": ("calls", "list the tools that an agent has"),
    "call": ("calls", "make one gated tool call"),
    "artifacts": ("artifacts", "list, save and remove the files that skills' code wrote"),
    "mcp": ("serve", "run the MCP server, or register it with a coding agent"),
    "hooks": ("hooks", "let your rules decide about the own tools of a coding agent"),
    "reload": ("reload", "read and load the code of skills again, and list what fails"),
    "approvals": ("approvals", "list and answer open permission requests"),
    "audit": ("audit", "list, show and verify recorded calls"),
    "policy": ("policy", "set a policy to begin with, explain a decision, or lint the rules"),
    "config": ("configuration", "show where the configuration is, and what is wrong with it"),
    "completions": ("completions", "print the script with which bash, zsh or fish completes"),
    "remote": ("skill_servers", "list and sync the servers whose skills are used here"),
    "bundle": ("bundle", "publish skills and rules as one signed bundle"),
    "sandbox": ("sandbox_status", "test the sandbox that commands run in"),
    "state": ("kept_state", "show where the state is, move it to a server, or copy it"),
    "tokens": ("tokens", "make, list and revoke tokens for the HTTP service"),
    "worker": ("extension:cells", "run the code of skills for a core in another process"),
    "sign": ("skill_signatures", "sign a skill of your own, for others to verify"),
    "registry": ("extension:registry", "serve a registry of packages, and make its tokens"),
    "keys": ("signing_keys", "make, list and revoke the keys of publishers of skills"),
    "signer": ("signing_keys", "make and list the keys that sign messages and transactions"),
    "self": ("self_removal", "remove what skillhouse left in clients and folders"),
    "stop": ("manage", "stop every tool and end the session keys at once"),
    "resume": ("manage", "allow the tools again after a stop"),
}
"""Each verb's module in this package or extension of ours, and what it does in one line."""


SHOWN = {
    "your skills": ("list", "show", "new"),
    "other people's": ("install", "update", "uninstall", "trust"),
    "coding agents": ("doctor", "mcp"),
    "what they may do": ("policy", "approvals"),
    "a page of all this": ("up",),
}
"""The verbs of a first day, by task; `skillhouse help --all` has the others too."""
ALIASES = {"add": "install", "remove": "uninstall", "status": "doctor"}
"""What other programs call a verb, which is understood."""
NO_VERBS = {
    "edit": "`skillhouse show NAME` prints where a skill is; change its SKILL.md with any editor",
    "skills": "`skillhouse list` lists the skills",
}
"""Words that people try, and what does it."""
TAKEN = frozenset({*VERBS, *ALIASES, *NO_VERBS, "help"})
"""What no extension's verb is called."""


def parser_of(verb: str) -> tuple[Verb, argparse.ArgumentParser]:
    """Return a verb and the parser of its arguments."""
    from skillhouse.frontends.cli.options import HelpFormatter, Parser

    command, summary = _command(verb)
    parser = Parser(
        prog=f"skillhouse {verb}",
        description=f"{summary[:1].upper()}{summary[1:]}.",
        epilog=command.examples,
        formatter_class=HelpFormatter,
    )
    command.configure(parser)
    _explain_below(parser, verb, command.examples)
    parser.set_defaults(verb=verb)
    return command, parser


def arguments_of(command: Verb, given: Sequence[str]) -> list[str]:
    """Return the arguments to parse: the group's own verb added, where none is given."""
    words = list(given)
    is_bare = not words or (words[0].startswith("-") and words[0] not in ("-h", "--help"))
    return command.adapt([command.without, *words] if command.without and is_bare else words)


def _command(verb: str) -> tuple[Verb, str]:
    """Return a verb with what it does in one line; KeyError where no extension has it either."""
    if verb in VERBS:
        module, summary = VERBS[verb]
        kind, _, name = module.partition(":")
        if kind == "extension":
            from skillhouse.extension import own_verbs

            return own_verbs(name)[verb], summary
        found: Verb = importlib.import_module(f"{__package__}.{module}").VERBS[verb]
        return found, summary
    from skillhouse.presentation.text import one_line

    command = extension_verbs()[verb][1]
    return command, one_line(command.summary)


def extension_verbs() -> dict[str, tuple[Extension, Verb]]:
    """Return the verbs of the extensions of others; those of ours are never replaced."""
    from skillhouse.extension import load_extensions

    return load_extensions().verbs(taken=TAKEN)


def _explain_below(parser: argparse.ArgumentParser, words: str, examples: str) -> None:
    """Give each verb below a group the examples that are about it."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to list them.
        if not isinstance(action.choices, dict):
            continue
        helps = {one.dest: one.help for one in getattr(action, "_choices_actions", ())}
        for name, below in action.choices.items():
            line = f"  skillhouse {words} {name}"
            own = [one for one in examples.splitlines() if f"{one} ".startswith(f"{line} ")]
            below.epilog = "\n".join(("examples:", *own)) if own else examples
            below.formatter_class = parser.formatter_class
            text = helps.get(name) or ""
            below.description = below.description or f"{text[:1].upper()}{text[1:]}."
            _explain_below(below, f"{words} {name}", examples)
