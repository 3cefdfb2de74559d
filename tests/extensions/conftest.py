"""Fixtures of the command line, which the tests of verbs and pages here use too."""

from tests.frontends.conftest import (
    elsewhere,
    peer,
    place,
    publisher,
    publisher_template,
    run,
    typing,
)

__all__ = ["elsewhere", "peer", "place", "publisher", "publisher_template", "run", "typing"]
