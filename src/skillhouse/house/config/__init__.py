"""The configuration: its values, its files, and which file may set which value."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.floor import Locations as Locations
    from skillhouse.house.config.bot_settings import BotSettings as BotSettings
    from skillhouse.house.config.bot_settings import DiscordSettings as DiscordSettings
    from skillhouse.house.config.bot_settings import TelegramSettings as TelegramSettings
    from skillhouse.house.config.code_settings import SkillCodeSettings as SkillCodeSettings
    from skillhouse.house.config.code_settings import callback_of as callback_of
    from skillhouse.house.config.config_faults import KeyInUse as KeyInUse
    from skillhouse.house.config.config_faults import UsableConfig as UsableConfig
    from skillhouse.house.config.config_faults import keys_in_use as keys_in_use
    from skillhouse.house.config.config_file import secret_variables as secret_variables
    from skillhouse.house.config.config_files import PROJECT_FILE as PROJECT_FILE
    from skillhouse.house.config.config_files import load_config as load_config
    from skillhouse.house.config.config_keys import CONFIG_KEYS as CONFIG_KEYS
    from skillhouse.house.config.config_values import Config as Config
    from skillhouse.house.config.config_values import ExtensionSettings as ExtensionSettings
    from skillhouse.house.config.config_values import (
        FindAndInstallSettings as FindAndInstallSettings,
    )
    from skillhouse.house.config.config_values import McpServerSettings as McpServerSettings
    from skillhouse.house.config.config_values import MemorySettings as MemorySettings
    from skillhouse.house.config.config_values import NetSettings as NetSettings
    from skillhouse.house.config.config_values import OAuthSettings as OAuthSettings
    from skillhouse.house.config.config_values import SandboxSettings as SandboxSettings
    from skillhouse.house.config.config_values import SearchSettings as SearchSettings
    from skillhouse.house.config.config_values import SecretSettings as SecretSettings
    from skillhouse.house.config.config_values import Settings as Settings
    from skillhouse.house.config.config_values import SignerSettings as SignerSettings
    from skillhouse.house.config.repositories import RepositorySettings as RepositorySettings
    from skillhouse.house.config.rule_lines import RuleLayer as RuleLayer
    from skillhouse.house.config.rule_lines import rule_layers as rule_layers
    from skillhouse.house.config.secret_places import is_place as is_place
    from skillhouse.house.config.secret_places import read_secret as read_secret
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
