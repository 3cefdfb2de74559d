"""The verb `publish`, and those of `registry` that change what a repository says of a version."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillhouse.answers.signatures import (
    PublishStatus,
    ReleaseChangeAnswer,
    published_answer,
)
from skillhouse.floor import structs
from skillhouse.frontends.cli.install_review import print_pair
from skillhouse.frontends.cli.options import UsageError, Verb, add_common, house_of
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.question import typed
from skillhouse.install import PreparedPackage, Publishing
from skillhouse.presentation.install_words import FILES_SHOWN
from skillhouse.presentation.text import counted, one_line, shown, some_names

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house.config import RepositorySettings

_EXAMPLES = """examples:
  skillhouse publish ./pdf --dry-run                   would the repository take it?
  skillhouse publish ./pdf --repository official
  skillhouse publish pdf-1.2.0.tar.gz --namespace acme
  skillhouse publish pdf-1.2.0.tar.gz --attestation pdf.sigstore.json

Shows exactly what would be published, with the checks of the repository, and asks a person to type
`publish`; `unsigned` where the skill has no signature (`skillhouse sign`). Elsewhere --yes, and
--allow-unsigned. A version is published once: its bytes never change. The repository is one of
[[skills.repositories]], whose `token` says where its token is.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="DIR|ARCHIVE", help="a skill's directory or archive")
    add_repository(parser)
    parser.add_argument("--namespace", default="", metavar="NS", help="whose it is (default)")
    parser.add_argument("--beside", default="", metavar="NAME",
                        help="though its name is near this one's, which is there")  # fmt: skip
    parser.add_argument("--attestation", dest="attestations", action="append", default=[],
                        metavar="FILE", help="a Sigstore bundle over the archive")  # fmt: skip
    parser.add_argument("--dry-run", action="store_true",
                        help="send it to be checked, publish nothing")  # fmt: skip
    parser.add_argument("--yes", action="store_true", help="do not ask about a signed skill")
    parser.add_argument("--allow-unsigned", action="store_true", help="with --yes: unsigned, too")
    add_common(parser)


def add_repository(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--repository", default="", metavar="NAME", help="a configured one (the only server)"
    )


def _publish(options: argparse.Namespace, terminal: Terminal) -> int:
    """Publish one skill; 1 when the person does not agree."""
    # Also a dry run sends the files to another machine.
    refuse_agents("publish")
    with house_of(options) as house:
        publishing = Publishing(house)
        settings = publishing.settings(options.repository)
        source = Path(options.start or ".", Path(options.source).expanduser())
        package = publishing.prepared(
            source,
            settings,
            namespace=options.namespace,
            beside=options.beside,
            attestations=[
                Path(options.start or ".", Path(one).expanduser()) for one in options.attestations
            ],
        )
        if not options.json:
            _print(package, terminal)
        if options.dry_run:
            is_new = publishing.tried(package)
            would = "would take it" if is_new else "has this version already, with these very bytes"
            return _end(package, "checked", f"`{settings.name}` {would}", options, terminal)
        if not _is_agreed(package, options, terminal):
            _end(package, "declined", "nothing was published", options, terminal)
            return 1
        is_new = publishing.publish(package)
    what = f"{package.typed} {package.facts.version} is published in `{settings.name}`"
    said = what if is_new else f"{what} already, with these very bytes"
    return _end(package, "published" if is_new else "unchanged", said, options, terminal)


def _end(
    package: PreparedPackage,
    status: PublishStatus,
    text: str,
    options: argparse.Namespace,
    terminal: Terminal,
) -> int:
    terminal.answer(published_answer(package, status), shown(text), as_json=options.json)
    return 0


def _is_agreed(package: PreparedPackage, options: argparse.Namespace, terminal: Terminal) -> bool:
    is_unsigned = not package.publisher
    if options.yes and (options.allow_unsigned or not is_unsigned):
        return True
    if is_unsigned:
        return typed("unsigned", terminal, instead="use --yes --allow-unsigned: it is unsigned")
    return typed("publish", terminal, instead="use --yes")


def _print(package: PreparedPackage, terminal: Terminal) -> None:
    facts, tree = package.facts, package.tree
    terminal.heading(f"{package.typed} {shown(facts.version)}")
    terminal.indented(one_line(facts.description), 2)
    pairs = {
        "goes to": f"{shown(package.address)}/{package.path}",
        "publisher": one_line(package.publisher) or "unknown: it is unsigned",
        "archive": package.digest,
        "attested": _attested(package),
        "digest": tree.digest,
        "licence": one_line(facts.license) or "none given",
        "size": f"{len(package.archive)} bytes, {counted(len(tree.files), 'file')}",
        "files": some_names([one.path for one in tree.files], FILES_SHOWN),
    }
    for label, text in pairs.items():
        if text:
            print_pair(label, text, terminal)
    for warning in package.warnings:
        print_pair("warning", one_line(warning), terminal)


def _attested(package: PreparedPackage) -> str:
    many = len(package.attestations)
    return f"{counted(many, 'attestation')} over this archive, kept beside it" if many else ""


_CHANGES = {
    "yank": "take a version back: only locks still have it",
    "unyank": "give a yanked version back",
    "revoke": "take a version back for good: nothing installs it",
}


def add_changes(verbs: Any) -> None:
    """Add the verbs of `registry` that change a repository elsewhere."""
    for name, text in _CHANGES.items():
        verb = verbs.add_parser(name, help=text)
        _add_release(verb)
        verb.add_argument("--reason", default="", metavar="TEXT", help="shown to who has it")
    channel = verbs.add_parser("channel", help="give a version another name, such as beta")
    _add_release(channel)
    channel.add_argument("channel", metavar="CHANNEL", help="such as beta")
    push = verbs.add_parser("push-revocations", help="give a signed list of revocations to it")
    push.add_argument("file", metavar="FILE", help="as `keys revoke` writes it")
    add_repository(push)
    add_common(push)


def _add_release(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "release", metavar="NAME@VERSION", help="such as pdf@1.2.0 or @acme/pdf@2.0.0"
    )
    add_repository(verb)
    add_common(verb)


CHANGES = (*_CHANGES, "channel", "push-revocations")


def change(options: argparse.Namespace, terminal: Terminal) -> int:
    """Do what one of `CHANGES` says."""
    verb = options.verb
    refuse_agents(f"registry {verb}")
    with house_of(options) as house:
        publishing = Publishing(house)
        settings = publishing.settings(options.repository)
        if verb == "push-revocations":
            file = Path(options.start or ".", Path(options.file).expanduser())
            number = publishing.push_revocations(settings, file)
            text = f"`{settings.name}` has list {number} of revocations now"
            value = ReleaseChangeAnswer(repository=settings.name, number=number)
            terminal.answer(value, text, as_json=options.json)
            return 0
        value, text = _changed(publishing, settings, options)
    terminal.answer(value, shown(text), as_json=options.json)
    return 0


def _changed(
    publishing: Publishing, settings: RepositorySettings, options: argparse.Namespace
) -> tuple[ReleaseChangeAnswer, str]:
    name, _, version = options.release.rpartition("@")
    if not name:
        raise UsageError(f"expected NAME@VERSION, got `{options.release}`")
    value = ReleaseChangeAnswer(name=name, version=version, repository=settings.name)
    if options.verb == "channel":
        publishing.set_channel(settings, name, version, options.channel)
        text = f"`{options.channel}` of {name} is {version} in `{settings.name}` now"
        return structs.replace(value, channel=options.channel), text
    release = publishing.set_state(
        settings, name, version, change=options.verb, reason=options.reason
    )
    text = f"{name} {version} is {release.state} in `{settings.name}` now"
    return structs.replace(value, state=release.state, reason=release.reason), text


VERBS = {"publish": Verb(_EXAMPLES, _configure, _publish)}
