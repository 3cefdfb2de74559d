"""The configuration: its values, its files, and which file may set which value."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.floor import Locations as Locations
    from skillhouse.runtime.config.checks import secret_variables as secret_variables
    from skillhouse.runtime.config.config_files import PROJECT_FILE as PROJECT_FILE
    from skillhouse.runtime.config.config_files import load_config as load_config
    from skillhouse.runtime.config.config_values import Config as Config
    from skillhouse.runtime.config.config_values import ExtensionSettings as ExtensionSettings
    from skillhouse.runtime.config.config_values import McpServerSettings as McpServerSettings
    from skillhouse.runtime.config.config_values import MemorySettings as MemorySettings
    from skillhouse.runtime.config.config_values import NetSettings as NetSettings
    from skillhouse.runtime.config.config_values import ProtectionSettings as ProtectionSettings
    from skillhouse.runtime.config.config_values import RegistrySettings as RegistrySettings
    from skillhouse.runtime.config.config_values import SandboxSettings as SandboxSettings
    from skillhouse.runtime.config.config_values import SecretSettings as SecretSettings
    from skillhouse.runtime.config.config_values import Settings as Settings
    from skillhouse.runtime.config.config_values import SignerSettings as SignerSettings
    from skillhouse.runtime.config.config_values import SkillCodeSettings as SkillCodeSettings
    from skillhouse.runtime.config.config_values import callback_of as callback_of
    from skillhouse.runtime.config.repositories import RepositorySettings as RepositorySettings
    from skillhouse.runtime.config.search_settings import SearchSettings as SearchSettings
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
