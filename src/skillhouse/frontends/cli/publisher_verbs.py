"""The verbs of `skillhouse keys` about publishers: their keys, certificates and revocations."""

from __future__ import annotations

import argparse
import functools
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from skillhouse import registry
from skillhouse.answers.packages import certificate_answer, publishers_answer
from skillhouse.answers.signatures import KeyChangeAnswer
from skillhouse.approval import OWNER
from skillhouse.extension import own_module
from skillhouse.floor import SkillhouseError, needs_extra, read_regular, structs, write_atomically
from skillhouse.frontends.cli.options import UsageError, positive
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.publisher_keys import (
    ROLES,
    publisher_store,
    remove_publisher_key,
)
from skillhouse.frontends.cli.publisher_secrets import open_private, password_for
from skillhouse.frontends.cli.question import confirmed
from skillhouse.install.pinned_roots import forget_roots, keep_root, kept_roots
from skillhouse.install.repositories import Repositories, read_token, repository_at
from skillhouse.presentation.text import counted, shown
from skillhouse.registry.owners import FIRST_ROOT, METADATA_DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cryptography.x509 import Certificate

    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Skillhouse
    from skillhouse.house.config import RepositorySettings

LOCAL = "local"
"""The registry of a root that is made without naming one, for use on machines of one's own."""
_FILE_MAX = 2 * 1_024 * 1_024


def add_publisher_options(new: argparse.ArgumentParser) -> None:
    """Add to `keys new` what makes a publisher's key."""
    group = new.add_argument_group("keys of publishers")
    group.add_argument(
        "--for",
        dest="use",
        choices=["transactions", *ROLES],
        default="transactions",
        help="what it signs (transactions); skills, or certificates as root or intermediate",
    )
    group.add_argument("--registry", metavar="NAME", help="whose root it is (local)")
    group.add_argument("--token", metavar="URI", help="make it in a hardware token (PKCS #11)")
    group.add_argument("--days", type=positive, default=0, help="validity of a root (3650)")
    group.add_argument("--output", metavar="FILE", help="the root certificate (root.crt)")


def add_publisher_verbs(verb: Callable[..., argparse.ArgumentParser], verbs: Any) -> None:
    """Add the verbs that only publishers need."""
    request = verb(verbs, "request", "ask for a certificate of a key", is_locked=True)
    request.add_argument("name", metavar="NAME", help="a key made with --for skills")
    request.add_argument("--publisher", metavar="HANDLE", help="the name to certify (NAME)")
    request.add_argument("--output", metavar="FILE", help="the request (NAME.csr)")
    issue = verb(verbs, "issue", "issue a certificate for a request", is_locked=True)
    issue.add_argument("request", metavar="FILE", help="a request of `keys request`")
    issue.add_argument("--by", required=True, metavar="NAME", help="the key of the issuer")
    issue.add_argument("--publisher", metavar="HANDLE", help="the name to certify (as requested)")
    issue.add_argument("--intermediate", action="store_true", help="one that issues others")
    issue.add_argument("--days", type=positive, default=0, help="its validity (365)")
    issue.add_argument("--output", metavar="FILE", help="it (developer-HANDLE.crt)")
    accept = verb(verbs, "certify", "keep the certificate that was issued for a key")
    accept.add_argument("certificate", metavar="FILE", help="such as developer-acme.crt")
    revoke = verb(verbs, "revoke", "take back a certificate or a release", is_locked=True)
    revoke.add_argument("certificate", nargs="?", metavar="FILE", help="a certificate; none renews")
    revoke.add_argument("--by", required=True, metavar="NAME", help="the key of the issuer")
    revoke.add_argument("--release", metavar="NAME@VERSION", help="a release instead")
    revoke.add_argument("--digest", metavar="skilltree1:…", help="files instead")
    revoke.add_argument("--from", dest="since", metavar="DATE", type=_date, help=_SINCE)
    revoke.add_argument("--reason", default="", metavar="TEXT", help="shown to who is refused")
    revoke.add_argument("--output", default="revocations.json", metavar="FILE", help="the list")
    trust = verb(verbs, "trust", "trust a root, or take over a revocation list")
    trust.add_argument("file", nargs="?", metavar="FILE", help="without one, list what is trusted")
    add_pin_options(trust)
    trust.add_argument(
        "--for", dest="use", choices=["skills", "timestamps"], default="skills", help="of a root"
    )
    trust.add_argument("--remove", metavar="FINGERPRINT", help="trust it no more")


_SINCE = "signatures confirmed to be older stay valid"


def _date(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        message = f"expected a date such as 2026-01-31, got `{text}`"
        raise argparse.ArgumentTypeError(message) from None


def run_publisher_verb(
    verb: str, house: Skillhouse, options: argparse.Namespace, terminal: Terminal
) -> int:
    """Do one of them; whatever changes something is for a person, and is recorded."""
    with needs_extra("registry"):
        import cryptography  # noqa: F401 - all that follows needs it
    if verb == "trust" and not (options.file or options.remove or options.repository):
        return _list_trusted(house, options, terminal)
    refuse_agents(f"keys {verb}")
    works: dict[str, Callable[[Skillhouse, argparse.Namespace], tuple[KeyChangeAnswer, str]]] = {
        "new": _new,
        "request": _request,
        "issue": _issue,
        "certify": _certify,
        "revoke": _revoke,
        "trust": functools.partial(_trust, terminal=terminal),
        "remove": functools.partial(remove_publisher_key, terminal=terminal),
    }
    value, text = works[verb](house, options)
    house.services.enforcement.noted("key", user=OWNER, reason=f"publisher {verb}: {text}")
    terminal.answer(value, shown(text), as_json=options.json)
    return 0


def _now() -> datetime:
    return datetime.now(UTC)


def _new(house: Skillhouse, options: argparse.Namespace) -> tuple[KeyChangeAnswer, str]:
    keys, role = publisher_store(house), ROLES[options.use]
    if options.use == "skills" and (options.registry or options.output or options.days):
        raise UsageError("a key for skills gets registry and validity with its certificate")
    key = registry.new_publisher_key(
        options.name,
        role,
        registry=(options.registry or LOCAL) if role == "root" else "",
        lock="pkcs11" if options.token else options.password.kind,
        token=options.token or "",
    )
    if role == "root":
        # Before there is a key that would then have no certificate.
        registry.publisher_name(key.registry)
        registry.checked_days(registry.Role.ROOT, options.days)
    password = password_for(key, options.password, is_new=True)
    if options.token:
        private = own_module("signer", "token_keys").make_token_key(key, password)
        keys.add_token(key)
    else:
        private = keys.add(key, password)
    value = KeyChangeAnswer(name=key.name, use=options.use)
    if role != "root":
        return (
            value,
            f"made {key.name}; `skillhouse keys request {key.name}` asks for a certificate",
        )
    root = registry.new_root(private, key.registry, _now(), days=options.days)
    keys.keep_certificates(key.name, [root])
    _anchors(house).add_root(root)
    path = _write(options.output or "root.crt", registry.pem_of([root]))
    value = structs.replace(value, file=str(path), certificate=registry.fingerprint(root))
    return value, f"made {key.name}; its certificate is `{path}`, and is trusted here"


def _request(house: Skillhouse, options: argparse.Namespace) -> tuple[KeyChangeAnswer, str]:
    keys = publisher_store(house)
    key = keys.get(options.name)
    if key.role == "root":
        raise UsageError("a root has its certificate already")
    handle = (options.publisher or key.name) if key.role == "developer" else ""
    name = registry.publisher_name(LOCAL, handle)
    request = registry.new_request(open_private(keys, key, options.password), name)
    keys.keep_request(key.name, registry.request_pem(request))
    path = _write(options.output or f"{key.name}.csr", registry.request_pem(request))
    text = f"wrote `{path}`; who has a root issues the certificate with `skillhouse keys issue`"
    return KeyChangeAnswer(file=str(path), publisher=handle), text


def _issue(house: Skillhouse, options: argparse.Namespace) -> tuple[KeyChangeAnswer, str]:
    keys = publisher_store(house)
    key, chain = _issuer(keys, options.by)
    request, asked = registry.read_request(_read(options.request))
    if options.intermediate and (asked.handle or options.publisher):
        raise UsageError("an intermediate has no publisher's name: request it with such a key")
    handle = options.publisher or asked.handle
    if not options.intermediate and not handle:
        raise UsageError("the request is for an intermediate; add --intermediate if that is meant")
    name = registry.publisher_name(registry.issuer_name(chain[0]).registry, handle)
    made = registry.issue(
        request,
        name,
        issuer=chain,
        key=open_private(keys, key, options.password),
        now=_now(),
        days=options.days,
    )
    stem = f"developer-{handle}" if handle else f"intermediate-{Path(options.request).stem}"
    path = _write(options.output or f"{stem}.crt", registry.pem_of(made))
    owner = keys.of_certificate(made[0])
    if owner:
        keys.keep_certificates(owner, made)
    kept = f", and kept it for the key `{owner}`" if owner else ""
    end = f"{made[0].not_valid_after_utc:%Y-%m-%d}"
    text = f"wrote `{path}` for {name.uri}, valid until {end}{kept}"
    issued = certificate_answer(made[0])
    return KeyChangeAnswer(file=str(path), key=owner, issued=issued), text


def _certify(house: Skillhouse, options: argparse.Namespace) -> tuple[KeyChangeAnswer, str]:
    keys = publisher_store(house)
    chain = registry.load_certificates(_read(options.certificate))
    owner = keys.of_certificate(chain[0]) if chain else ""
    if not owner:
        message = f"no key here has requested it: `{options.certificate}`"
        raise registry.PublisherError("certificate", message)
    role = registry.Role(keys.get(owner).role)
    name = registry.check_role(chain[0], role)
    keys.keep_certificates(owner, chain)
    text = f"kept the certificate of `{owner}`: {name.uri}"
    return KeyChangeAnswer(key=owner, issued=certificate_answer(chain[0])), text


def _revoke(house: Skillhouse, options: argparse.Namespace) -> tuple[KeyChangeAnswer, str]:
    keys, anchors = publisher_store(house), _anchors(house)
    key, chain = _issuer(keys, options.by)
    entry = _revocation(options, chain[0])
    own = registry.fingerprint(chain[0])
    known = [one for one in anchors.read(_now()).revocations if one.issuer == own]
    before = known[0].content if known else None
    content = registry.next_list(before, [entry] if entry else [], _now())
    private = open_private(keys, key, options.password)
    data = registry.sign_list(content, key=private, issuer=chain)
    anchors.add_list(data, _now())
    path = _write(options.output, data)
    crl = registry.crl_of(content, key=private, issuer=chain[0])
    other = _write(str(Path(options.output).with_suffix(".crl")), crl)
    what = "renewed the list" if entry is None else f"revoked {entry.what}"
    text = f"{what}; publish `{path}` (and `{other}` for other tools), valid until "
    value = KeyChangeAnswer(file=str(path), crl=str(other), number=content.number)
    return value, text + content.expires_at[:10]


def _revocation(options: argparse.Namespace, issuer: Certificate) -> registry.Revocation | None:
    given = [options.certificate, options.release, options.digest]
    if sum(one is not None for one in given) > 1:
        raise UsageError("expected one of: a certificate, --release, --digest")
    if options.certificate is not None:
        (certificate, *_) = registry.load_certificates(_read(options.certificate))
        return registry.revoked_certificate(
            certificate, issuer, reason=options.reason, since=options.since
        )
    if options.since is not None:
        raise UsageError("--from is about a certificate")
    if options.release is None and options.digest is None:
        return None
    return registry.Revocation(
        release=options.release or "", tree_digest=options.digest or "", reason=options.reason
    )


def _trust(
    house: Skillhouse, options: argparse.Namespace, *, terminal: Terminal
) -> tuple[KeyChangeAnswer, str]:
    anchors = _anchors(house)
    if options.repository is not None:
        return pin_root(house, options, terminal)
    if options.fingerprint:
        raise UsageError("--fingerprint is of the root of a repository: add --repository NAME")
    if options.remove is not None:
        count = anchors.forget(options.remove.removeprefix("sha256:"))
        count += forget_roots(options.remove, house.config.state_directory)
        if not count:
            raise registry.PublisherError(
                "trust", f"nothing trusted begins with {options.remove!r}"
            )
        return KeyChangeAnswer(removed=count), f"no longer trusted: {options.remove}"
    data = _read(options.file)
    if b"-----BEGIN CERTIFICATE-----" not in data:
        given = anchors.add_list(data, _now())
        count = len(given.content.entries)
        entries = counted(count, "entry", "entries")
        text = f"took over revocation list {given.content.number} with {entries}"
        return KeyChangeAnswer(number=given.content.number, entries=count), text
    certificates = registry.load_certificates(data)
    if len(certificates) != 1:
        raise UsageError(f"expected one root certificate in `{options.file}`")
    digest = registry.fingerprint(certificates[0])
    if options.use == "timestamps":
        anchors.add_authority(certificates[0])
        return KeyChangeAnswer(certificate=digest), f"trusted for timestamps: {digest}"
    name = anchors.add_root(certificates[0])
    return KeyChangeAnswer(certificate=digest, registry=name), f"trusted for `{name}`: {digest}"


def _list_trusted(house: Skillhouse, options: argparse.Namespace, terminal: Terminal) -> int:
    pinned = kept_roots(house.config.state_directory)
    value = publishers_answer(_anchors(house).read(_now()), pinned)
    if options.json:
        terminal.json(value)
        return 0
    for one in value.roots:
        terminal.rows([(f"root {one.names}", f"until {one.valid_until[:10]}")], most=60)
        # Never cut: people compare it character by character.
        terminal.line(f"    {one.certificate}")
    for stamp in value.timestamps:
        terminal.rows([("timestamps", shown(stamp.subject))])
        terminal.line(f"    {stamp.certificate}")
    for listed in value.revocations:
        count = f"{counted(listed.entries, 'entry', 'entries')}, until {listed.expires_at[:10]}"
        terminal.rows([(f"revocation list {listed.number}", count)])
        terminal.line(f"    {listed.issuer}")
    for root in value.repositories:
        terminal.line(f"  repository {root.repository}")
        terminal.line(f"    {root.root}")
    if not (value.roots or value.timestamps or value.revocations or value.repositories):
        terminal.note("nothing is trusted yet; `skillhouse keys trust root.crt` trusts a root")
    return 0


def _issuer(
    keys: registry.PublisherKeys, name: str
) -> tuple[registry.PublisherKey, Sequence[Certificate]]:
    key = keys.get(name)
    chain = keys.certificates(name)
    if key.role == "developer" or not chain:
        raise UsageError(f"expected a root or an intermediate with its certificate, got `{name}`")
    return key, chain


def _anchors(house: Skillhouse) -> registry.AnchorStore:
    return registry.AnchorStore(house.config.state_directory / registry.TRUSTED_DIRECTORY)


def _read(name: str) -> bytes:
    with open(name, "rb") as file:
        data = file.read(_FILE_MAX + 1)
    if len(data) > _FILE_MAX:
        raise UsageError(f"expected a file of at most {_FILE_MAX} bytes: `{name}`")
    return data


def _write(name: str, data: bytes) -> Path:
    """Write a file that others are to get, in place of an older one."""
    path = Path(os.path.abspath(name))
    with write_atomically(path, mode=0o644, durable=True) as file:
        file.write(data)
    return path


_ROOT_MAX = 512_000


def add_pin_options(trust: argparse.ArgumentParser) -> None:
    """Add to `keys trust` what is about the root of a repository."""
    group = trust.add_argument_group("the root of a repository")
    group.add_argument(
        "--repository",
        metavar="NAME",
        help="pin FILE, a root or its https address, for it; without FILE, the root it has now",
    )
    group.add_argument(
        "--fingerprint", metavar="sha256:…", help="that the root must have; do not ask"
    )


def pin_root(
    house: Skillhouse, options: argparse.Namespace, terminal: Terminal
) -> tuple[KeyChangeAnswer, str]:
    """Pin a root once a person agreed to its fingerprint; return a value and its text.

    Raises:
        UsageError: no one can be asked, and no fingerprint is given.
        SkillhouseError: it is another root, none, or no person agreed.
    """
    if options.remove is not None or options.use != "skills":
        raise UsageError("--repository pins a root: it goes with FILE and --fingerprint only")
    state = house.config.state_directory
    settings = Repositories(house.config, house.services.network).named(options.repository)
    data = _given_root(house, settings, options.file)
    with needs_extra("registry"):
        # python-tuf is an optional part, which takes 0.1 s to load.
        from skillhouse.registry.signed_targets import read_root
    root = read_root(data)
    before = kept_roots(state).get(settings.name, "")
    terminal.note(f"root {root.version} of `{settings.name}`, {shown(settings.url)}")
    terminal.note(f"  fingerprint  {root.digest}")
    keys = counted(root.keys, "key")
    terminal.note(f"  signed by    {root.threshold} of {keys}, until {root.ends:%Y-%m-%d}")
    if before not in ("", root.digest):
        terminal.note(f"  in place of  {before}")
    if not _agreed_root(root.digest, options.fingerprint, terminal):
        raise SkillhouseError("nothing was pinned")
    keep_root(settings, data, state)
    value = KeyChangeAnswer(repository=settings.name, root=root.digest)
    return value, f"pinned for `{settings.name}`: {root.digest}"


def _agreed_root(found: str, wanted: str | None, terminal: Terminal) -> bool:
    if wanted is None:
        question = "Did its owner give you this fingerprint, by another way than the repository?"
        return confirmed(question, terminal, instead="say --fingerprint sha256:…")
    if found.removeprefix("sha256:") != wanted.lower().removeprefix("sha256:"):
        raise SkillhouseError(f"expected a root with the fingerprint {wanted}, got {found}")
    return True


def _given_root(house: Skillhouse, settings: RepositorySettings, name: str | None) -> bytes:
    """Return the bytes of the root that is meant."""
    if name is None:
        token = read_token(settings, house.config.places.environment)
        repository = repository_at(house.services.network, settings.url, token=token)
        data = repository.read(f"{METADATA_DIRECTORY}/{FIRST_ROOT}", _ROOT_MAX)
        if data is None:
            raise SkillhouseError(f"`{settings.name}` has no root: its metadata is not signed")
        return data
    if "://" not in name:
        return read_regular(Path(name).expanduser(), _ROOT_MAX)
    fetch = house.services.network.download_for(name)
    answer = anyio.run(fetch, name, _ROOT_MAX)
    if answer.status != 200:
        raise SkillhouseError(f"status {answer.status} at `{name}`")
    return bytes(answer.body)
