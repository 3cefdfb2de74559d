"""The configuration: its values, its files, and which file may set which value."""

from skillhouse.floor import Locations
from skillhouse.runtime.config.config_files import PROJECT_FILE, load_config
from skillhouse.runtime.config.config_values import (
    Config,
    McpServerSettings,
    MemorySettings,
    ProtectionSettings,
    Settings,
    SignerSettings,
)
from skillhouse.runtime.config.extensions import ExtensionSettings, SkillCodeSettings, callback_of
from skillhouse.runtime.config.network import NetSettings, SecretSettings, secret_variables

__all__ = [
    "PROJECT_FILE",
    "Config",
    "ExtensionSettings",
    "Locations",
    "McpServerSettings",
    "MemorySettings",
    "NetSettings",
    "ProtectionSettings",
    "SecretSettings",
    "Settings",
    "SignerSettings",
    "SkillCodeSettings",
    "callback_of",
    "load_config",
    "secret_variables",
]
