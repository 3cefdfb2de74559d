"""`skillhouse bundle`: skills as one signed archive in a bucket or a directory."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse import registry, remote
from skillhouse.approval import OWNER
from skillhouse.floor import ConfigError, needs_extra, structs
from skillhouse.frontends.answers.json_form import copied
from skillhouse.frontends.answers.packages import BundleAnswer, PublishedBundleAnswer
from skillhouse.frontends.cli.options import UsageError, Verb, add_common, house_of
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.publisher_secrets import add_password, open_private
from skillhouse.frontends.presentation.text import counted, one_line, shown, some_names

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house.skill_bundle import BundleLook, BundleState

_EXAMPLES = """examples:
  skillhouse bundle push ./skills s3://acme-skills/team --key acme
  skillhouse bundle push ./skills file:///srv/bundles/team --key acme
  skillhouse bundle show
  skillhouse bundle pull

`push` packs every skill in DIR into one archive, signs it with a key that signs skills, stores it
under its digest and makes it the current one. Servers with `[skills] source` of that address take
it while they run; `pull` takes it now. How a bucket is reached is under `[skills]`, too:
source_endpoint, source_region, source_access_key and source_secret_key.
"""
_LABEL = 12


def _configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    push = verbs.add_parser("push", help="publish the skills of a directory as one bundle")
    push.add_argument("directory", metavar="DIR", help="the directory with the skills in it")
    push.add_argument("source", metavar="URL", help="s3://BUCKET/PATH or file:///DIRECTORY")
    push.add_argument("--key", metavar="NAME", help="whose key (the only one for skills)")
    push.add_argument("--number", type=int, metavar="N", help="its number (the next one)")
    add_password(push)
    pull = verbs.add_parser("pull", help="take the current bundle now")
    show = verbs.add_parser("show", help="show the bundle that is used here")
    for verb in (push, pull, show):
        add_common(verb)


def _bundle(options: argparse.Namespace, terminal: Terminal) -> int:
    if options.verb == "push":
        return _push(options, terminal)
    return _show(options, terminal)


def _push(options: argparse.Namespace, terminal: Terminal) -> int:
    """Sign and publish; nothing names the archive before it is stored."""
    from skillhouse.frontends.cli.skill_signatures import signing_chain
    from skillhouse.house.skill_bundle import publish_bundle, read_pointer, store_access

    refuse_agents("bundle push")
    with needs_extra("registry"):
        import cryptography  # noqa: F401 - all that follows needs it
    directory = Path(options.start or ".", Path(options.directory).expanduser()).resolve()
    with house_of(options) as house:
        keys = registry.PublisherKeys(house.config.state_directory / registry.KEYS_DIRECTORY)
        key, chain = signing_chain(keys, options.key)
        name = registry.check_role(chain[0], registry.Role.DEVELOPER)
        who = f"{name.handle} of {name.registry}"
        try:
            # The rules of the configuration's own key, for what was typed.
            settings = structs.replace(
                house.config.skills, source=options.source, source_publisher=who
            )
        except ConfigError as error:
            raise UsageError(str(error)) from error
        access = store_access(settings, house.config.places.environment)
        store = remote.open_store(settings.source, access)
        before, _ = read_pointer(store)
        following = 1 if before is None else before.number + 1
        number = following if options.number is None else options.number
        if not 1 <= number <= registry.NUMBER_MAX:
            raise UsageError(f"expected a number from 1 to {registry.NUMBER_MAX}, got {number}")
        private = open_private(keys, key, options.password)
        bundle = settings.source_name
        packed = registry.pack_bundle(
            directory, bundle, number, key=private, chain=chain, now=datetime.now(UTC)
        )
        pointer = publish_bundle(store, packed.archive, number)
        house.services.enforcement.noted(
            "bundle-published",
            user=OWNER,
            reason=pointer.digest,
            key=registry.fingerprint(chain[0]),
        )
    value = PublishedBundleAnswer(
        source=settings.source,
        name=bundle,
        number=number,
        digest=pointer.digest,
        publisher=who,
        skills=packed.skills,
        bytes=len(packed.archive),
    )
    many = counted(len(packed.skills), "skill")
    text = f"bundle {number} of `{settings.source}` is published: {many}, signed by {who}"
    terminal.answer(value, shown(text), as_json=options.json)
    return 0


def _show(options: argparse.Namespace, terminal: Terminal) -> int:
    """Show what is used here, for `pull` after a look; 1 where that was refused."""
    from skillhouse.house.skill_bundle import SkillBundleSource

    with house_of(options) as house:
        if not house.config.skills.source:
            message = "no bundle is configured: set `source` and `source_publisher` in `[skills]`"
            raise ConfigError(message, key="skills.source")
        source = SkillBundleSource(house.config)
        look = source.look() if options.verb == "pull" else None
        state = source.state() if look is None else look.state
        if look is not None and look.status == "taken":
            house.refresh()
    if options.json:
        answer = copied(BundleAnswer, state, source=house.config.skills.source)
        terminal.json(answer if look is None else structs.replace(answer, status=look.status))
    else:
        _print(house.config.skills.source, state, look, terminal)
    return 1 if look is not None and look.status == "refused" else 0


def _print(source: str, state: BundleState, look: BundleLook | None, terminal: Terminal) -> None:
    from skillhouse.house.skill_bundle import kept

    said = {"taken": ": taken now", "unchanged": ": nothing is newer", "refused": ": not taken"}
    terminal.line(shown(source) + (said[look.status] if look is not None else ""))
    if state.has_any:
        rows = {
            "bundle": f"{state.number}, taken {state.taken_at}",
            "signed by": f"{state.publisher} at {state.signed_at}",
            "digest": state.digest,
            "skills": some_names(list(state.skills), 12),
        }
        for label, text in rows.items():
            terminal.pair(f"  {label}", one_line(text), label_width=_LABEL)
    if state.problem:
        terminal.error(f"{one_line(state.problem)}; {kept(state)}")
    elif not state.has_any:
        terminal.pair("  bundle", "none yet", label_width=_LABEL)


VERBS = {"bundle": Verb(_EXAMPLES, _configure, _bundle, without="show")}
