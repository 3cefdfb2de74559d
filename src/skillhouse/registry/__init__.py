"""Brings a signed package to a directory, or refuses; publishes one.

Each name is loaded when it is first used, because most commands install nothing.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.registry.candidates import Candidate as Candidate
    from skillhouse.registry.candidates import SourceFile as SourceFile
    from skillhouse.registry.candidates import find_candidates as find_candidates
    from skillhouse.registry.changes import TreeChanges as TreeChanges
    from skillhouse.registry.changes import compare_trees as compare_trees
    from skillhouse.registry.changes import text_changes as text_changes
    from skillhouse.registry.facts import SkillFacts as SkillFacts
    from skillhouse.registry.facts import read_facts as read_facts
    from skillhouse.registry.git_repository import Git as Git
    from skillhouse.registry.git_repository import GitRepository as GitRepository
    from skillhouse.registry.installs import InstallPlace as InstallPlace
    from skillhouse.registry.installs import Installs as Installs
    from skillhouse.registry.installs import LocalEditsError as LocalEditsError
    from skillhouse.registry.lock import LOCK_FILE as LOCK_FILE
    from skillhouse.registry.lock import Lock as Lock
    from skillhouse.registry.lock import LockedSignature as LockedSignature
    from skillhouse.registry.lock import LockEntry as LockEntry
    from skillhouse.registry.lock import entry_of as entry_of
    from skillhouse.registry.lock import entry_value as entry_value
    from skillhouse.registry.lock import read_lock as read_lock
    from skillhouse.registry.members import directory_members as directory_members
    from skillhouse.registry.package import Package as Package
    from skillhouse.registry.package import member_tree as member_tree
    from skillhouse.registry.package import pack as pack
    from skillhouse.registry.package import write_archive as write_archive
    from skillhouse.registry.package_store import PackageStore as PackageStore
    from skillhouse.registry.source import Source as Source
    from skillhouse.registry.source import SourceError as SourceError
    from skillhouse.registry.source import parse_source as parse_source
    from skillhouse.registry.trust import Publisher as Publisher
    from skillhouse.registry.trust import PublisherError as PublisherError
    from skillhouse.registry.trust import publisher_of as publisher_of
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
