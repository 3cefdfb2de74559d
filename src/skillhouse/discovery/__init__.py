"""Finds the skills of this place and lists them for a model.

The face loads each name when it is first used: who discovers renders no catalog, and who does
neither watches.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.discovery.catalog import Catalog as Catalog
    from skillhouse.discovery.catalog import catalog_under as catalog_under
    from skillhouse.discovery.catalog import render_catalog as render_catalog
    from skillhouse.discovery.discovering import discover as discover
    from skillhouse.discovery.roots import Root as Root
    from skillhouse.discovery.roots import default_roots as default_roots
    from skillhouse.discovery.roots import git_root as git_root
    from skillhouse.discovery.watching import watch as watch
else:
    import importlib

    _FILES = {
        "catalog": "Catalog catalog_under render_catalog",
        "discovering": "discover",
        "roots": "Root default_roots git_root",
        "watching": "watch",
    }
    _FILE_OF = {name: file for file, names in _FILES.items() for name in names.split()}
    __all__ = sorted(_FILE_OF)

    def __getattr__(name):
        file = _FILE_OF.get(name)
        if file is None:
            raise AttributeError(f"module `skillhouse.discovery` has no attribute `{name}`")
        value = getattr(importlib.import_module(f"skillhouse.discovery.{file}"), name)
        globals()[name] = value
        return value
