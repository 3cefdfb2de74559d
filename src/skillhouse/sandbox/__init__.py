"""Runs commands in the strongest sandbox that works on this machine."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.sandbox.covers import CoverCache as CoverCache
    from skillhouse.sandbox.covers import covered_paths as covered_paths
    from skillhouse.sandbox.crash_watch import watch_for_crashes as watch_for_crashes
    from skillhouse.sandbox.git_changes import GitChanges as GitChanges
    from skillhouse.sandbox.git_changes import after_options as after_options
    from skillhouse.sandbox.git_changes import ask_git as ask_git
    from skillhouse.sandbox.git_changes import find_git_changes as find_git_changes
    from skillhouse.sandbox.git_changes import has_new_submodules as has_new_submodules
    from skillhouse.sandbox.git_changes import sets_up_remotes as sets_up_remotes
    from skillhouse.sandbox.git_changes import tracks_a_remote as tracks_a_remote
    from skillhouse.sandbox.git_history import find_git_contents as find_git_contents
    from skillhouse.sandbox.git_places import GitFinder as GitFinder
    from skillhouse.sandbox.git_places import GitPlaces as GitPlaces
    from skillhouse.sandbox.git_places import find_git as find_git
    from skillhouse.sandbox.git_places import is_inside as is_inside
    from skillhouse.sandbox.git_places import linked_directories as linked_directories
    from skillhouse.sandbox.git_places import of_one_owner as of_one_owner
    from skillhouse.sandbox.git_places import with_submodules as with_submodules
    from skillhouse.sandbox.git_remotes import added_remote as added_remote
    from skillhouse.sandbox.git_remotes import remote_paths as remote_paths
    from skillhouse.sandbox.interpreters import Python as Python
    from skillhouse.sandbox.interpreters import PythonPlaces as PythonPlaces
    from skillhouse.sandbox.interpreters import choose_python as choose_python
    from skillhouse.sandbox.interpreters import default_python as default_python
    from skillhouse.sandbox.interpreters import installed_pythons as installed_pythons
    from skillhouse.sandbox.interpreters import known_variables as known_variables
    from skillhouse.sandbox.interpreters import plan_argv as plan_argv
    from skillhouse.sandbox.interpreters import plan_readable as plan_readable
    from skillhouse.sandbox.interpreters import unusable_pythons as unusable_pythons
    from skillhouse.sandbox.kept_tests import KeptTests as KeptTests
    from skillhouse.sandbox.launcher import Launcher as Launcher
    from skillhouse.sandbox.launcher import kill_sandboxes as kill_sandboxes
    from skillhouse.sandbox.launcher import launcher_for as launcher_for
    from skillhouse.sandbox.level_probes import self_test as self_test
    from skillhouse.sandbox.profile import LEFT_OUT as LEFT_OUT
    from skillhouse.sandbox.profile import Completed as Completed
    from skillhouse.sandbox.profile import CoveredPaths as CoveredPaths
    from skillhouse.sandbox.profile import Limits as Limits
    from skillhouse.sandbox.profile import OpenedProtection as OpenedProtection
    from skillhouse.sandbox.profile import OutputListener as OutputListener
    from skillhouse.sandbox.profile import SandboxError as SandboxError
    from skillhouse.sandbox.profile import SandboxProfile as SandboxProfile
    from skillhouse.sandbox.profile import SandboxUnavailableError as SandboxUnavailableError
    from skillhouse.sandbox.profile import Streams as Streams
    from skillhouse.sandbox.profile import Toolset as Toolset
    from skillhouse.sandbox.profile import fits as fits
    from skillhouse.sandbox.profile import left_out_text as left_out_text
    from skillhouse.sandbox.status import LACKING as LACKING
    from skillhouse.sandbox.status import ProbeResult as ProbeResult
    from skillhouse.sandbox.status import SandboxLevel as SandboxLevel
    from skillhouse.sandbox.status import SandboxStatus as SandboxStatus
    from skillhouse.sandbox.status import detect as detect
    from skillhouse.sandbox.status import has_bubblewrap as has_bubblewrap
    from skillhouse.sandbox.tool_finder import ProgramPlaces as ProgramPlaces
    from skillhouse.sandbox.tool_finder import ToolFinder as ToolFinder
    from skillhouse.sandbox.tool_finder import ToolSettings as ToolSettings
    from skillhouse.sandbox.tool_finder import compared_programs as compared_programs
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
