"""Finds the skills of this place and lists them for a model."""

from skillhouse.discovery.catalog import Catalog, render_catalog
from skillhouse.discovery.discover import discover
from skillhouse.discovery.roots import Root, default_roots, git_root, project_roots

__all__ = [
    "Catalog",
    "Root",
    "default_roots",
    "discover",
    "git_root",
    "project_roots",
    "render_catalog",
]
