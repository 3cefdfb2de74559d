"""Says what another client sees, and writes what it reads."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.clients.exports.export_state import Action as Action
    from skillhouse.clients.exports.export_state import ExportError as ExportError
    from skillhouse.clients.exports.export_state import ExportRequest as ExportRequest
    from skillhouse.clients.exports.export_state import ExportSource as ExportSource
    from skillhouse.clients.exports.export_state import ExportState as ExportState
    from skillhouse.clients.exports.export_state import Form as Form
    from skillhouse.clients.exports.export_state import Item as Item
    from skillhouse.clients.exports.exporter import Exporter as Exporter
    from skillhouse.clients.exports.folders import client_profile as client_profile
    from skillhouse.clients.exports.folders import client_profiles as client_profiles
    from skillhouse.clients.exports.trees import difference as difference
    from skillhouse.clients.registration.client_configs import ClientConfigs as ClientConfigs
    from skillhouse.clients.registration.clients import CLIENTS as CLIENTS
    from skillhouse.clients.registration.clients import ClientConfig as ClientConfig
    from skillhouse.clients.registration.config_file import ConfigFileError as ConfigFileError
    from skillhouse.clients.registration.entries import Change as Change
    from skillhouse.clients.registration.entries import Standing as Standing
    from skillhouse.clients.registration.program import fault_of as fault_of
    from skillhouse.clients.simulation.causes import CAUSES as CAUSES
    from skillhouse.clients.simulation.causes import Cause as Cause
    from skillhouse.clients.simulation.comparison import compare as compare
    from skillhouse.clients.simulation.findings import problems as problems
    from skillhouse.clients.simulation.verdicts import Budget as Budget
    from skillhouse.clients.simulation.verdicts import Cut as Cut
    from skillhouse.clients.simulation.verdicts import Lens as Lens
    from skillhouse.clients.simulation.verdicts import LensClient as LensClient
    from skillhouse.clients.simulation.verdicts import LensProblem as LensProblem
    from skillhouse.clients.simulation.verdicts import LensSkill as LensSkill
    from skillhouse.clients.simulation.verdicts import LensState as LensState
    from skillhouse.clients.simulation.verdicts import NearMiss as NearMiss
    from skillhouse.clients.simulation.verdicts import Verdict as Verdict
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
