"""Brings a package or a folder to its place, or refuses, and publishes."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.install.change_plan import QUESTIONS as QUESTIONS
    from skillhouse.install.change_plan import ChangeRequest as ChangeRequest
    from skillhouse.install.change_plan import asked_state as asked_state
    from skillhouse.install.change_plan import split_id as split_id
    from skillhouse.install.dry_run import dry_run_config as dry_run_config
    from skillhouse.install.install_policy import UNSIGNED as UNSIGNED
    from skillhouse.install.install_policy import UNTRUSTED as UNTRUSTED
    from skillhouse.install.install_policy import UntrustedError as UntrustedError
    from skillhouse.install.install_policy import agreements as agreements
    from skillhouse.install.install_report import InstallReport as InstallReport
    from skillhouse.install.install_steps import UnsignedError as UnsignedError
    from skillhouse.install.installed_skills import InstalledSkills as InstalledSkills
    from skillhouse.install.installer import Installer as Installer
    from skillhouse.install.lock_import import ChangedSourceError as ChangedSourceError
    from skillhouse.install.lock_import import RestoredSkill as RestoredSkill
    from skillhouse.install.lock_import import is_users_lock as is_users_lock
    from skillhouse.install.lock_import import known_locks as known_locks
    from skillhouse.install.lock_import import lock_changes as lock_changes
    from skillhouse.install.lock_import import named_entries as named_entries
    from skillhouse.install.lock_import import restored as restored
    from skillhouse.install.pinned_roots import kept_roots as kept_roots
    from skillhouse.install.publisher import PreparedPackage as PreparedPackage
    from skillhouse.install.publisher import Publishing as Publishing
    from skillhouse.install.refresh import RepositoryRefresh as RepositoryRefresh
    from skillhouse.install.repositories import Repositories as Repositories
    from skillhouse.install.repositories import RepositoryOffer as RepositoryOffer
    from skillhouse.install.repositories import read_token as read_token
    from skillhouse.install.repositories import repository_at as repository_at
    from skillhouse.install.repository_search import judged_listing as judged_listing
    from skillhouse.install.skill_sources import OpenSource as OpenSource
    from skillhouse.install.skill_stage import StagedSkill as StagedSkill
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
