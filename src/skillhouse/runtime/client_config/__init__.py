"""Tells clients to start this house's server, in their own configuration files."""

from skillhouse.runtime.client_config.clients import CLIENTS, ClientConfig
from skillhouse.runtime.client_config.configs import ClientConfigs
from skillhouse.runtime.client_config.file import ConfigFileError
from skillhouse.runtime.client_config.program import fault_of
from skillhouse.runtime.client_config.values import Change, Standing

__all__ = [
    "CLIENTS",
    "Change",
    "ClientConfig",
    "ClientConfigs",
    "ConfigFileError",
    "Standing",
    "fault_of",
]
