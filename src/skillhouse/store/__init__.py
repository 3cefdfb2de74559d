"""Keeps state durably."""

from skillhouse.store.migrations import CACHE, STATE, STATE_FILE, Schema, migrate
from skillhouse.store.pool import close_pooled, pooled
from skillhouse.store.store import Store

__all__ = ["CACHE", "STATE", "STATE_FILE", "Schema", "Store", "close_pooled", "migrate", "pooled"]
