"""Defines what an extension is, lists ours, and finds and loads those of others.

Each name is loaded when it is first used, because most commands need no extension.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.extension.contract import ConfigSection as ConfigSection
    from skillhouse.extension.contract import Extension as Extension
    from skillhouse.extension.contract import ExtensionContext as ExtensionContext
    from skillhouse.extension.contract import ExtensionPage as ExtensionPage
    from skillhouse.extension.contract import ExtensionRoute as ExtensionRoute
    from skillhouse.extension.contract import Hooks as Hooks
    from skillhouse.extension.contract import Verb as Verb
    from skillhouse.extension.entry_points import EntryPoint as EntryPoint
    from skillhouse.extension.entry_points import find_entry_points as find_entry_points
    from skillhouse.extension.entry_points import site_directories as site_directories
    from skillhouse.extension.load import GROUP as GROUP
    from skillhouse.extension.load import ExtensionFault as ExtensionFault
    from skillhouse.extension.load import LoadedExtensions as LoadedExtensions
    from skillhouse.extension.load import load_extensions as load_extensions
    from skillhouse.extension.own import OWN_EXTENSIONS as OWN_EXTENSIONS
    from skillhouse.extension.own import OwnExtension as OwnExtension
    from skillhouse.extension.own import OwnPackage as OwnPackage
    from skillhouse.extension.own import is_installed as is_installed
    from skillhouse.extension.own import own_module as own_module
    from skillhouse.extension.own import own_verbs as own_verbs
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
