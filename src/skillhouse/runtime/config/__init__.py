"""What a house is configured to be: its values, their files, and who may set what."""

from skillhouse.floor import Locations
from skillhouse.runtime.config.config_files import PROJECT_FILE, load_config
from skillhouse.runtime.config.config_values import Config, Settings
from skillhouse.runtime.config.extensions import ExtensionSettings, SkillCodeSettings, callback_of
from skillhouse.runtime.config.memory import MemorySettings
from skillhouse.runtime.config.network import NetSettings, SecretSettings, secret_variables
from skillhouse.runtime.config.protection import ProtectionSettings
from skillhouse.runtime.config.signer import SignerSettings

__all__ = [
    "PROJECT_FILE",
    "Config",
    "ExtensionSettings",
    "Locations",
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
