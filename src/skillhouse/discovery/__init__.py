"""Finds skills and lists them for a model."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.discovery.build_index import discover as discover
    from skillhouse.discovery.build_index import discover_since as discover_since
    from skillhouse.discovery.catalog import Catalog as Catalog
    from skillhouse.discovery.catalog import catalog_under as catalog_under
    from skillhouse.discovery.catalog import render_catalog as render_catalog
    from skillhouse.discovery.catalog_styles import STYLES as STYLES
    from skillhouse.discovery.catalog_text import within as within
    from skillhouse.discovery.roots import LinkPlaces as LinkPlaces
    from skillhouse.discovery.roots import Root as Root
    from skillhouse.discovery.roots import default_roots as default_roots
    from skillhouse.discovery.walk import skills_below as skills_below
    from skillhouse.discovery.watcher import watch as watch
    from skillhouse.discovery.watcher import watch_bound as watch_bound
    from skillhouse.discovery.watcher import watch_use as watch_use
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
