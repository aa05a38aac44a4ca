"""Runs whose products are cut in a way that a test asks for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from figrl.learn.plan import EmbedPlan
from figrl.learn.setup import Tiling


def cut_products(patch: pytest.MonkeyPatch, name: str, wide: Tiling, narrow: Tiling) -> None:
    """Let the next run be cut like this, and be called `name`."""

    def in_folder(plan, folder):
        return replace(plan, setup=replace(plan.setup, folder=folder, wide=wide, narrow=narrow))

    patch.setattr(EmbedPlan, "in_folder", in_folder)
    patch.setattr("figrl.serve.runs.run_name", lambda *_: name)
