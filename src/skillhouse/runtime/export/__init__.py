"""Writes skills into the folders that other clients read, and knows what it wrote."""

from skillhouse.runtime.export.differing import difference
from skillhouse.runtime.export.exporter import Exporter
from skillhouse.runtime.export.folders import client_profile, client_profiles
from skillhouse.runtime.export.values import (
    Action,
    ExportError,
    ExportRequest,
    ExportSource,
    ExportState,
    Form,
    Item,
)

__all__ = [
    "Action",
    "ExportError",
    "ExportRequest",
    "ExportSource",
    "ExportState",
    "Exporter",
    "Form",
    "Item",
    "client_profile",
    "client_profiles",
    "difference",
]
