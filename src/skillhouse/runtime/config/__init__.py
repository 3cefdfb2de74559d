"""What a house is configured to be: its values, their files, and who may set what."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.runtime.config.extensions import ExtensionSettings as ExtensionSettings
    from skillhouse.runtime.config.extensions import SkillCodeSettings as SkillCodeSettings
    from skillhouse.runtime.config.extensions import callback_of as callback_of
    from skillhouse.runtime.config.files import PROJECT_FILE as PROJECT_FILE
    from skillhouse.runtime.config.files import load_config as load_config
    from skillhouse.runtime.config.memory import MemorySettings as MemorySettings
    from skillhouse.runtime.config.network import NetSettings as NetSettings
    from skillhouse.runtime.config.network import SecretSettings as SecretSettings
    from skillhouse.runtime.config.network import secret_variables as secret_variables
    from skillhouse.runtime.config.protection import ProtectionSettings as ProtectionSettings
    from skillhouse.runtime.config.signer import SignerSettings as SignerSettings
    from skillhouse.runtime.config.values import Config as Config
    from skillhouse.runtime.config.values import Locations as Locations
    from skillhouse.runtime.config.values import Settings as Settings
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
