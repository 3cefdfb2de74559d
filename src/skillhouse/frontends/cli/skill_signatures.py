"""`skillhouse sign`, and `skillhouse verify` of a directory."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse import registry
from skillhouse.answers.signatures import (
    SignedSkillAnswer,
    UnverifiedSkillAnswer,
    VerifiedSkillAnswer,
)
from skillhouse.approval import OWNER
from skillhouse.floor import SIGNATURE_FILE, needs_extra, structs, write_atomically
from skillhouse.frontends.cli.event_loop import run_in_loop
from skillhouse.frontends.cli.options import UsageError, Verb, add_json, house_of, skill_directory
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.publisher_secrets import add_password, open_private
from skillhouse.net import NetError, fetch, parse_url
from skillhouse.presentation.text import counted, shown

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Skillhouse

_SIGN_EXAMPLES = """examples:
  skillhouse sign ./pdf --key acme
  skillhouse sign ./pdf --timestamp https://timestamps.example.com/tsr

Writes skill.sig into the skill: who signed it, for which registry, and every file with its mode.
A timestamp lets the signature outlive the certificate: `registry.timestamp` names its authority.
"""


def _configure_sign(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="the directory of the skill")
    parser.add_argument("--key", metavar="NAME", help="whose key (the only one for skills)")
    parser.add_argument(
        "--timestamp",
        metavar="URL",
        help="a timestamp authority (RFC 3161; `registry.timestamp` of the configuration)",
    )
    parser.add_argument("--no-timestamp", action="store_true", help="ask no authority this time")
    parser.add_argument(
        "--replace", action="store_true", help="in place of the signature of another publisher"
    )
    add_password(parser)
    add_json(parser)
    parser.add_argument("-C", dest="start", metavar="DIR", help="work as if started in DIR")
    parser.set_defaults(roots=None, profile=None, no_cache=False)


def _sign(options: argparse.Namespace, terminal: Terminal) -> int:
    refuse_agents("sign")
    if options.timestamp and options.no_timestamp:
        raise UsageError("--timestamp and --no-timestamp exclude each other")
    with needs_extra("registry"):
        import cryptography  # noqa: F401 - all that follows needs it
    directory, now = skill_directory(options, options.directory), datetime.now(UTC)
    with house_of(options) as house:
        keys = registry.PublisherKeys(house.config.state_directory / registry.KEYS_DIRECTORY)
        key, chain = signing_chain(keys, options.key)
        name = registry.check_role(chain[0], registry.Role.DEVELOPER)
        registry.check_time(chain[0], registry.Role.DEVELOPER, now)
        package = registry.pack(directory)
        _refuse_other(directory, registry.fingerprint(chain[0]), options, house, package)
        identity = registry.SkillIdentity(
            name=package.facts.name, version=package.facts.version, repository=name.registry
        )
        private = open_private(keys, key, options.password)
        bundle = registry.sign_tree(package.tree, identity, key=private, chain=chain, now=now)
        authority = options.timestamp or house.config.registry.timestamp
        if authority and not options.no_timestamp:
            stamp = run_in_loop(_timestamp, authority, bundle.signature, house)
            bundle = structs.replace(bundle, timestamps=(stamp,))
        path = directory / SIGNATURE_FILE
        with write_atomically(path, mode=0o644, durable=True) as file:
            file.write(registry.write_bundle(bundle))
        house.services.enforcement.noted(
            "skill-signed",
            user=OWNER,
            reason=package.tree.digest,
            key=registry.fingerprint(chain[0]),
        )
    version = f" {identity.version}" if identity.version else ""
    value = SignedSkillAnswer(
        name=identity.name,
        version=identity.version,
        publisher=name.handle,
        registry=name.registry,
        tree_digest=package.tree.digest,
        file=str(path),
        certificate_ends=f"{min(one.not_valid_after_utc for one in chain):%Y-%m-%dT%H:%M:%SZ}",
        timestamped=bool(bundle.timestamps),
    )
    text = f"signed {identity.name}{version} as {name.handle} of {name.registry}: `{path}`"
    terminal.answer(value, shown(text), as_json=options.json)
    if not options.json:
        terminal.line(shown(_how_long(value, authority)))
    return 0


def _how_long(signed: SignedSkillAnswer, authority: str) -> str:
    """Return how long a signature holds, and what would make it hold for longer."""
    end = signed.certificate_ends[:10]
    if signed.timestamped:
        return f"the timestamp of {authority} keeps it when the certificate ends, on {end}"
    reason = "no authority was asked"
    if not authority:
        reason = "no timestamp authority is set (`registry.timestamp`, or --timestamp URL)"
    return f"it ends with the certificate, on {end}: {reason}"


def signing_chain(
    keys: registry.PublisherKeys, name: str | None
) -> tuple[registry.PublisherKey, Sequence[Certificate]]:
    """Return the key that signs skills, and its certificates; PublisherError where it has none."""
    key = _signing_key(keys, name)
    chain = keys.certificates(key.name)
    if not chain:
        message = f"the key `{key.name}` has no certificate; `skillhouse keys request` asks for one"
        raise registry.PublisherError("certificate", message)
    return key, chain


def _signing_key(keys: registry.PublisherKeys, name: str | None) -> registry.PublisherKey:
    if name is not None:
        key = keys.get(name)
        if key.role != "developer":
            raise UsageError(f"`{name}` issues certificates; skills are signed with another key")
        return key
    found = [key for key in keys.all() if key.role == "developer"]
    if len(found) != 1:
        names = ", ".join(f"`{key.name}`" for key in found)
        hint = (
            f"name one with --key: {names}" if found else "`keys new NAME --for skills` makes one"
        )
        raise UsageError(f"there are {len(found)} keys that sign skills; {hint}")
    return found[0]


def _refuse_other(
    directory: Path,
    own: str,
    options: argparse.Namespace,
    house: Skillhouse,
    package: registry.Package,
) -> None:
    """Refuse to write over the valid signature of another publisher without --replace."""
    if options.replace:
        return
    try:
        check = house.services.installed_check.publishers
        publisher = check.publisher_of(directory, package.tree)
    except registry.PublisherError:
        # It is worth nothing here: an old one of ours over other files, most often.
        return
    if publisher is not None and publisher.certificate != own:
        message = f"it is signed by {publisher.handle}; add --replace if yours is to take its place"
        raise registry.PublisherError("signature", message)


async def _timestamp(url: str, signature: bytes, house: Skillhouse) -> bytes:
    """Return the answer of a timestamp authority about a signature, if it can be read.

    Whether the authority is trusted is for who verifies: here it may well not be.
    """
    policy = house.services.network.policy.granted(parse_url(url), "POST")
    try:
        response = await fetch(
            url,
            policy=policy,
            method="POST",
            headers={"Content-Type": "application/timestamp-query"},
            body=registry.timestamp_request(signature),
            route=house.services.network.route,
        )
    except NetError as error:
        message = f"`{url}` does not answer, and --no-timestamp signs without it: {error}"
        raise registry.PublisherError("timestamp", message) from error
    if response.status != 200:
        message = f"expected the answer 200 of the authority, got {response.status}"
        raise registry.PublisherError("timestamp", message)
    registry.read_timestamp(response.body, signature)
    return response.body


def verify_directory(options: argparse.Namespace, given: str, terminal: Terminal) -> int:
    """Say who signed the skill in a directory; 1 when it is unsigned or refused."""
    directory = skill_directory(options, given)
    with house_of(options) as house:
        check = house.services.installed_check.publishers
        try:
            found = registry.signed_skill(directory, check, repository=options.repository)
        except registry.PublisherError as error:
            if not options.json:
                raise
            terminal.json(UnverifiedSkillAnswer(step=error.step, message=str(error)))
            return 1
    publisher, facts = found.publisher, found.facts
    value = VerifiedSkillAnswer(
        name=facts.name,
        version=facts.version,
        tree_digest=found.tree.digest,
        publisher=publisher,
    )
    version = f" {facts.version}" if facts.version else ""
    when = "" if publisher.is_time_trusted else " by the signer's clock"
    text = (
        f"{facts.name}{version}: signed by {publisher.handle} of {publisher.registry} "
        f"at {publisher.signed_at}{when}, {counted(len(found.tree.files), 'file')} as signed"
    )
    terminal.answer(value, shown(text), as_json=options.json)
    for warning in publisher.warnings:
        terminal.note(f"{terminal.style('warning:', 'yellow', errors=True)} {shown(warning)}")
    return 0


VERBS = {
    "sign": Verb(_SIGN_EXAMPLES, _configure_sign, _sign),
}
