"""Lets a model find a skill in the configured repositories, and install it after one yes."""

from skillhouse.extensions.installs.find_and_install import (
    FindAndInstallTool as FindAndInstallTool,
)
