"""Translate one protocol each, and decide nothing."""
