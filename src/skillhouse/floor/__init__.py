"""What all packages share: errors, diagnostics, paths, digests, names and our own formats.

Each name is loaded when it is first used, because few commands need all of them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.floor.digests import Digest as Digest
    from skillhouse.floor.digests import canonical_json as canonical_json
    from skillhouse.floor.digests import decode as decode
    from skillhouse.floor.digests import digest as digest
    from skillhouse.floor.digests import encode as encode
    from skillhouse.floor.digests import shaped as shaped
    from skillhouse.floor.errors import AmbiguousSkillError as AmbiguousSkillError
    from skillhouse.floor.errors import ConfigError as ConfigError
    from skillhouse.floor.errors import DecodeError as DecodeError
    from skillhouse.floor.errors import Diagnostic as Diagnostic
    from skillhouse.floor.errors import ExposedError as ExposedError
    from skillhouse.floor.errors import LocationError as LocationError
    from skillhouse.floor.errors import MissingExtraError as MissingExtraError
    from skillhouse.floor.errors import PathError as PathError
    from skillhouse.floor.errors import PlaceError as PlaceError
    from skillhouse.floor.errors import Severity as Severity
    from skillhouse.floor.errors import SkillError as SkillError
    from skillhouse.floor.errors import SkillhouseError as SkillhouseError
    from skillhouse.floor.errors import StateError as StateError
    from skillhouse.floor.errors import TreeError as TreeError
    from skillhouse.floor.errors import UnknownSkillError as UnknownSkillError
    from skillhouse.floor.errors import UnusableSkillError as UnusableSkillError
    from skillhouse.floor.errors import WireNameError as WireNameError
    from skillhouse.floor.errors import extra_advice as extra_advice
    from skillhouse.floor.errors import needs_extra as needs_extra
    from skillhouse.floor.errors import package_advice as package_advice
    from skillhouse.floor.faults import InternalFaultError as InternalFaultError
    from skillhouse.floor.faults import as_error as as_error
    from skillhouse.floor.faults import fault_finding as fault_finding
    from skillhouse.floor.faults import isolated as isolated
    from skillhouse.floor.machine import Clock as Clock
    from skillhouse.floor.machine import ClockReading as ClockReading
    from skillhouse.floor.machine import Locations as Locations
    from skillhouse.floor.machine import SteadyClock as SteadyClock
    from skillhouse.floor.machine import system_clock as system_clock
    from skillhouse.floor.names import WireNames as WireNames
    from skillhouse.floor.names import nearest as nearest
    from skillhouse.floor.names import wire_name as wire_name
    from skillhouse.floor.ownership import PathStateCache as PathStateCache
    from skillhouse.floor.ownership import check_private as check_private
    from skillhouse.floor.ownership import directory_problem as directory_problem
    from skillhouse.floor.ownership import file_problem as file_problem
    from skillhouse.floor.ownership import is_sealed as is_sealed
    from skillhouse.floor.ownership import make_private as make_private
    from skillhouse.floor.ownership import open_own as open_own
    from skillhouse.floor.ownership import opened_problem as opened_problem
    from skillhouse.floor.ownership import target_problem as target_problem
    from skillhouse.floor.ownership import trail as trail
    from skillhouse.floor.paths import checked_parts as checked_parts
    from skillhouse.floor.paths import confine as confine
    from skillhouse.floor.paths import descriptor as descriptor
    from skillhouse.floor.paths import file_stamp as file_stamp
    from skillhouse.floor.paths import git_root as git_root
    from skillhouse.floor.paths import is_below as is_below
    from skillhouse.floor.paths import is_utf8 as is_utf8
    from skillhouse.floor.paths import open_beneath as open_beneath
    from skillhouse.floor.paths import open_directory_beneath as open_directory_beneath
    from skillhouse.floor.paths import read_beneath as read_beneath
    from skillhouse.floor.paths import read_opened as read_opened
    from skillhouse.floor.paths import read_regular as read_regular
    from skillhouse.floor.paths import sync_directory as sync_directory
    from skillhouse.floor.paths import write_atomically as write_atomically
    from skillhouse.floor.persistence import DEPENDENCIES as DEPENDENCIES
    from skillhouse.floor.persistence import FIXED as FIXED
    from skillhouse.floor.persistence import PATH_GROUPS as PATH_GROUPS
    from skillhouse.floor.persistence import PathClass as PathClass
    from skillhouse.floor.persistence import PathGroup as PathGroup
    from skillhouse.floor.persistence import PersistentPaths as PersistentPaths
    from skillhouse.floor.persistence import name_filter as name_filter
    from skillhouse.floor.persistence import named as named
    from skillhouse.floor.persistence import spelled as spelled
    from skillhouse.floor.rules import ONE_TIME as ONE_TIME
    from skillhouse.floor.secret_names import PROTECTED_NAMES as PROTECTED_NAMES
    from skillhouse.floor.secret_names import SECRET_NAMES as SECRET_NAMES
    from skillhouse.floor.secret_names import is_public_certificate as is_public_certificate
    from skillhouse.floor.secret_names import is_secret as is_secret
    from skillhouse.floor.secret_names import is_secret_file as is_secret_file
    from skillhouse.floor.secret_names import may_end_secret as may_end_secret
    from skillhouse.floor.trees import EXECUTABLE_MODE as EXECUTABLE_MODE
    from skillhouse.floor.trees import SIGNATURE_FILE as SIGNATURE_FILE
    from skillhouse.floor.trees import TREE_MAX_BYTES as TREE_MAX_BYTES
    from skillhouse.floor.trees import TREE_MAX_FILES as TREE_MAX_FILES
    from skillhouse.floor.trees import Tree as Tree
    from skillhouse.floor.trees import TreeFile as TreeFile
    from skillhouse.floor.trees import is_leftover_name as is_leftover_name
    from skillhouse.floor.trees import leftover_unit as leftover_unit
    from skillhouse.floor.trees import matching_tree as matching_tree
    from skillhouse.floor.trees import persons_leftovers as persons_leftovers
    from skillhouse.floor.trees import read_tree as read_tree
    from skillhouse.floor.trees import tree_digest as tree_digest
    from skillhouse.floor.trees import tree_of as tree_of
    from skillhouse.floor.trees import unread_paths as unread_paths
    from skillhouse.floor.trees import without_leftovers as without_leftovers
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
