"""Says what another client sees, and writes what it reads."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.clients.allow_list import own_list_of as own_list_of
    from skillhouse.clients.allow_list import unattended_of as unattended_of
    from skillhouse.clients.client_configs import ClientConfigs as ClientConfigs
    from skillhouse.clients.client_configs import register as register
    from skillhouse.clients.client_table import coding_agents as coding_agents
    from skillhouse.clients.client_table import has_own_folder as has_own_folder
    from skillhouse.clients.client_table import is_installed as is_installed
    from skillhouse.clients.client_table import known_clients as known_clients
    from skillhouse.clients.client_table import project_folders as project_folders
    from skillhouse.clients.client_table import user_folders as user_folders
    from skillhouse.clients.client_table import variable_folders as variable_folders
    from skillhouse.clients.comparison import compare as compare
    from skillhouse.clients.config_file import Change as Change
    from skillhouse.clients.config_file import Standing as Standing
    from skillhouse.clients.export_state import Action as Action
    from skillhouse.clients.export_state import ExportError as ExportError
    from skillhouse.clients.export_state import ExportRequest as ExportRequest
    from skillhouse.clients.export_state import ExportSource as ExportSource
    from skillhouse.clients.export_state import ExportState as ExportState
    from skillhouse.clients.export_state import Form as Form
    from skillhouse.clients.export_state import Item as Item
    from skillhouse.clients.export_state import exported_sources as exported_sources
    from skillhouse.clients.exporter import Exporter as Exporter
    from skillhouse.clients.exporter import export as export
    from skillhouse.clients.findings import problems as problems
    from skillhouse.clients.fixes import Discard as Discard
    from skillhouse.clients.fixes import Fix as Fix
    from skillhouse.clients.fixes import apply_fix as apply_fix
    from skillhouse.clients.fixes import proposed_fixes as proposed_fixes
    from skillhouse.clients.folders import client_profile as client_profile
    from skillhouse.clients.folders import client_profiles as client_profiles
    from skillhouse.clients.folders import profile_to_compare as profile_to_compare
    from skillhouse.clients.program import own_program as own_program
    from skillhouse.clients.trees import difference as difference
    from skillhouse.clients.verdicts import ClientColumn as ClientColumn
    from skillhouse.clients.verdicts import ClientReport as ClientReport
    from skillhouse.clients.verdicts import Cut as Cut
    from skillhouse.clients.verdicts import LensState as LensState
    from skillhouse.clients.verdicts import ReportedProblem as ReportedProblem
    from skillhouse.clients.verdicts import ReportedSkill as ReportedSkill
    from skillhouse.clients.verdicts import Verdict as Verdict
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
