"""`skillhouse skill install`: the command as design 002 prints it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from skillhouse.frontends.cli.install import configure_install, install
from skillhouse.frontends.cli.options import Verb

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal

_EXAMPLES = """examples:
  skillhouse skill install crypto-balance
  skillhouse skill install crypto-balance --profile owliabot-js     into workspace/skills

The same as `skillhouse install`, which has all the examples.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    configure_install(verbs.add_parser("install", help="install skills, as `skillhouse install`"))


def _skill(options: argparse.Namespace, terminal: Terminal) -> int:
    return install(options, terminal)


VERBS = {"skill": Verb(_EXAMPLES, _configure, _skill)}
