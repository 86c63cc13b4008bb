"""Composites of scikit-learn: one table where all members are tables, otherwise asked through their members' tables."""

from __future__ import annotations

from typing import Any

from macem.oracle import BlackBoxOracle, Oracle


def over_members(model: Any, reason: str) -> Oracle:
    """Ask a composite through its members' own oracles."""
    return BlackBoxOracle(model, note=reason)
