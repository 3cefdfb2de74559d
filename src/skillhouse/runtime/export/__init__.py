"""Writes skills into the folders that other clients read, and knows what it wrote."""

from skillhouse.runtime.export.differing import difference
from skillhouse.runtime.export.exporter import Exporter
from skillhouse.runtime.export.folders import client_profile, client_profiles
from skillhouse.runtime.export.values import Action, ExportError, Form, Item, Request, State

__all__ = [
    "Action",
    "ExportError",
    "Exporter",
    "Form",
    "Item",
    "Request",
    "State",
    "client_profile",
    "client_profiles",
    "difference",
]
