"""Orders candidates by boosted trees, which were fitted on English requests (`ranking.json`).

`./x bench research/fit --semantic --write` fits them; decision record 0320 says how good they are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from skillhouse.retrieval.evidence import FEATURES, Evidence

if TYPE_CHECKING:
    from skillhouse.extensions.meaning.embedder import Floats

FILE = Path(__file__).with_name("ranking.json")
ENCODERS = ("use", "granite")
"""The encoders whose cosines the trees read."""
_TIES = 1e-4
INPUTS = (*FEATURES, "words", *ENCODERS, *(f"{name} below" for name in ("words", *ENCODERS)))
"""What a row is ordered by; the last three are the distances to the best row of the request."""


def inputs_of(judged: Sequence[Evidence]) -> Floats:
    """Return a row of `INPUTS` for each candidate, all of which have votes of `ENCODERS`."""
    votes = np.asarray(
        [
            (each.words, *(each.fused.cosines[name] for name in ENCODERS))
            for each in judged
            if each.fused is not None
        ],
        np.float32,
    )
    features = np.asarray([each.features for each in judged], np.float32)
    return np.concatenate((features, votes, votes - votes.max(axis=0)), axis=1)


class Trees:
    """Trees of decisions; a node is a number, a leaf the complement of its own."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        """Take what `ranking.json` has. ValueError: it is about other inputs."""
        if tuple(content["inputs"]) != INPUTS:
            raise ValueError("expected trees of the features that rows have: fit them again")
        self._feature = np.asarray(content["feature"])
        self._most = np.asarray(content["most"], np.float32)
        self._next = np.asarray(content["next"])
        self._leaf = np.asarray(content["leaf"])
        self._roots = np.asarray(content["roots"])

    def ordered(self, judged: Sequence[Evidence]) -> list[Evidence]:
        """Return rows with the trees' scores, from 0 to 100; others than `ENCODERS` keep theirs."""
        if any(each.fused is None or {*each.fused.cosines} != {*ENCODERS} for each in judged):
            return [*judged]
        found = []
        for each, value in zip(judged, self.scores(inputs_of(judged)), strict=True):
            # Rows in the same leaves keep the order of the weighed sum.
            score = 100.0 / (1.0 + math.exp(-value)) + _TIES * each.score
            found.append(each._replace(score=score))
        return found

    def scores(self, inputs: Floats) -> Sequence[float]:
        """Return the score of each row, higher is better, of any size."""
        node = np.broadcast_to(self._roots, (len(inputs), len(self._roots))).copy()
        rows = np.arange(len(inputs))[:, None]
        while (node >= 0).any():
            inner = np.maximum(node, 0)
            is_more = inputs[rows, self._feature[inner]] > self._most[inner]
            node = np.where(node >= 0, self._next[inner, is_more.astype(np.intp)], node)
        found: list[float] = self._leaf[~node].sum(axis=1).tolist()
        return found


def load_trees() -> Trees:
    return Trees(json.loads(FILE.read_text("utf-8")))


def packed_trees(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of `ranking.json` from what lightgbm's `dump_model` gives."""
    content: dict[str, Any] = {"inputs": INPUTS, "feature": [], "most": [], "next": []}
    leaves: list[float] = []

    def add(node: Mapping[str, Any]) -> int:
        if "leaf_value" in node:
            leaves.append(round(node["leaf_value"], 5))
            return ~(len(leaves) - 1)
        number = len(content["feature"])
        content["feature"].append(node["split_feature"])
        content["most"].append(round(node["threshold"], 5))
        content["next"].append([0, 0])
        content["next"][number] = [add(node["left_child"]), add(node["right_child"])]
        return number

    roots = [add(tree["tree_structure"]) for tree in model["tree_info"]]
    return {**content, "leaf": leaves, "roots": roots}
