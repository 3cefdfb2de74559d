"""Brings a signed package to a directory, or refuses; publishes one.

Each name is loaded when it is first used, because most commands install nothing.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.registry.candidates import Candidate as Candidate
    from skillhouse.registry.candidates import SourceListing as SourceListing
    from skillhouse.registry.candidates import find_candidates as find_candidates
    from skillhouse.registry.certificate_issue import checked_days as checked_days
    from skillhouse.registry.certificate_issue import issue as issue
    from skillhouse.registry.certificate_issue import issuer_name as issuer_name
    from skillhouse.registry.certificate_issue import new_request as new_request
    from skillhouse.registry.certificate_issue import new_root as new_root
    from skillhouse.registry.certificate_issue import read_request as read_request
    from skillhouse.registry.certificate_issue import request_pem as request_pem
    from skillhouse.registry.certificates import Role as Role
    from skillhouse.registry.certificates import check_role as check_role
    from skillhouse.registry.certificates import check_time as check_time
    from skillhouse.registry.certificates import fingerprint as fingerprint
    from skillhouse.registry.certificates import load_certificates as load_certificates
    from skillhouse.registry.certificates import named_uri as named_uri
    from skillhouse.registry.certificates import pem_of as pem_of
    from skillhouse.registry.certificates import publisher_name as publisher_name
    from skillhouse.registry.facts import SkillFacts as SkillFacts
    from skillhouse.registry.facts import TreeChanges as TreeChanges
    from skillhouse.registry.facts import compare_trees as compare_trees
    from skillhouse.registry.facts import read_facts as read_facts
    from skillhouse.registry.facts import text_changes as text_changes
    from skillhouse.registry.git_repository import Git as Git
    from skillhouse.registry.git_repository import GitRepository as GitRepository
    from skillhouse.registry.installs import PACKAGES as PACKAGES
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
    from skillhouse.registry.lock_merge import LockMerge as LockMerge
    from skillhouse.registry.lock_merge import merge_lock as merge_lock
    from skillhouse.registry.mirror import MirrorReport as MirrorReport
    from skillhouse.registry.mirror import update_mirror as update_mirror
    from skillhouse.registry.mirror_directory import MIRROR_BYTES_MAX as MIRROR_BYTES_MAX
    from skillhouse.registry.mirror_directory import MirrorDirectory as MirrorDirectory
    from skillhouse.registry.mirror_directory import MirrorError as MirrorError
    from skillhouse.registry.other_locks import Comparison as Comparison
    from skillhouse.registry.other_locks import OtherEntry as OtherEntry
    from skillhouse.registry.other_locks import compare_hash as compare_hash
    from skillhouse.registry.other_locks import read_other_lock as read_other_lock
    from skillhouse.registry.package import Package as Package
    from skillhouse.registry.package import PackageStore as PackageStore
    from skillhouse.registry.package import directory_members as directory_members
    from skillhouse.registry.package import member_tree as member_tree
    from skillhouse.registry.package import pack as pack
    from skillhouse.registry.package import write_archive as write_archive
    from skillhouse.registry.publish_checks import CheckedPackage as CheckedPackage
    from skillhouse.registry.publish_checks import HostingError as HostingError
    from skillhouse.registry.publish_checks import PublishChecks as PublishChecks
    from skillhouse.registry.publish_checks import media_type_of as media_type_of
    from skillhouse.registry.publisher_keys import PublisherKey as PublisherKey
    from skillhouse.registry.publisher_keys import PublisherKeys as PublisherKeys
    from skillhouse.registry.publisher_keys import new_publisher_key as new_publisher_key
    from skillhouse.registry.releases import DEFAULT_NAMESPACE as DEFAULT_NAMESPACE
    from skillhouse.registry.releases import VERSIONS_MAX as VERSIONS_MAX
    from skillhouse.registry.releases import Release as Release
    from skillhouse.registry.releases import RepositoryDocument as RepositoryDocument
    from skillhouse.registry.releases import SkillReleases as SkillReleases
    from skillhouse.registry.releases import address_name as address_name
    from skillhouse.registry.releases import blob_path as blob_path
    from skillhouse.registry.releases import encode_document as encode_document
    from skillhouse.registry.releases import is_version as is_version
    from skillhouse.registry.releases import split_name as split_name
    from skillhouse.registry.releases import typed_name as typed_name
    from skillhouse.registry.repository import DirectoryAccess as DirectoryAccess
    from skillhouse.registry.repository import ListedSkill as ListedSkill
    from skillhouse.registry.repository import Repository as Repository
    from skillhouse.registry.repository import RepositoryAnswer as RepositoryAnswer
    from skillhouse.registry.repository import RepositoryError as RepositoryError
    from skillhouse.registry.repository import directory_of as directory_of
    from skillhouse.registry.revocations import REVOCATION_DAYS as REVOCATION_DAYS
    from skillhouse.registry.revocations import Revocation as Revocation
    from skillhouse.registry.revocations import RevocationList as RevocationList
    from skillhouse.registry.revocations import crl_of as crl_of
    from skillhouse.registry.revocations import next_list as next_list
    from skillhouse.registry.revocations import read_list as read_list
    from skillhouse.registry.revocations import revoked_certificate as revoked_certificate
    from skillhouse.registry.revocations import sign_list as sign_list
    from skillhouse.registry.signature_bundle import SignatureBundle as SignatureBundle
    from skillhouse.registry.signature_bundle import write_bundle as write_bundle
    from skillhouse.registry.signatures import TrustAnchors as TrustAnchors
    from skillhouse.registry.signatures import read_timestamp as read_timestamp
    from skillhouse.registry.signatures import sign_tree as sign_tree
    from skillhouse.registry.signatures import timestamp_request as timestamp_request
    from skillhouse.registry.signatures import verify_signature as verify_signature
    from skillhouse.registry.signed_directory import PublisherCheck as PublisherCheck
    from skillhouse.registry.signed_directory import read_signature as read_signature
    from skillhouse.registry.signed_directory import signed_skill as signed_skill
    from skillhouse.registry.source import MissingPathError as MissingPathError
    from skillhouse.registry.source import Source as Source
    from skillhouse.registry.source import SourceError as SourceError
    from skillhouse.registry.source import parse_source as parse_source
    from skillhouse.registry.source_files import SourceFile as SourceFile
    from skillhouse.registry.source_files import local_files as local_files
    from skillhouse.registry.trust import KEYS_DIRECTORY as KEYS_DIRECTORY
    from skillhouse.registry.trust import SIGNATURE_MAX as SIGNATURE_MAX
    from skillhouse.registry.trust import TRUSTED_DIRECTORY as TRUSTED_DIRECTORY
    from skillhouse.registry.trust import Publisher as Publisher
    from skillhouse.registry.trust import PublisherError as PublisherError
    from skillhouse.registry.trust import SkillIdentity as SkillIdentity
    from skillhouse.registry.trust_anchors import AnchorStore as AnchorStore
    from skillhouse.registry.version_ranges import choose as choose
    from skillhouse.registry.version_ranges import is_older as is_older
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
