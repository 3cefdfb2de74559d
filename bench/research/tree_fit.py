"""Fits the trees that order candidates, where lightgbm is installed; we do not require it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from _relevance import FOLDS, Judged, Query, judge
from skillhouse.extensions.meaning.trees import ENCODERS, FILE, Trees, inputs_of, packed_trees
from skillhouse.retrieval.evidence import Evidence

_PARAMETERS = {
    "objective": "lambdarank",
    "num_leaves": 6,
    "learning_rate": 0.05,
    "min_data_in_leaf": 100,
    "lambda_l2": 5.0,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "feature_fraction": 0.6,
    "seed": 1,
    "verbose": -1,
    "num_threads": 1,
}
_TREES = 150

Found = Mapping[str, Sequence[tuple[str, Evidence]]]
"""The candidates of each request with their evidence, by the request's id."""


class _Asked:
    """The candidates of a request, in the order of the weighed sum.

    Without the votes of all `ENCODERS`, there are no inputs and the order stays.
    """

    def __init__(self, query: Query, found: Sequence[tuple[str, Evidence]]) -> None:
        self.fold, self.relevance = query.fold, query.relevance
        self.ids = [document for document, _ in found]
        votes = found[0][1].fused if found else None
        voted = set() if votes is None else {*votes.cosines}
        self.inputs = inputs_of([each for _, each in found]) if voted == {*ENCODERS} else None
        self.gains = [2 ** query.relevance.get(document, 0) - 1 for document in self.ids]

    def judged_by(self, trees: Trees) -> Judged:
        if self.inputs is None:
            return judge(self.ids, self.relevance)
        scores = trees.scores(self.inputs)
        order = sorted(range(len(scores)), key=lambda at: -scores[at])
        return judge([self.ids[at] for at in order], self.relevance)


def trees_without_the_fold(
    queries: Sequence[Query], found: Found, *, write: bool
) -> list[Judged] | None:
    """Return the results under trees of other folds; None without lightgbm.

    `write` also writes the trees of all requests.
    """
    try:
        lightgbm = importlib.import_module("lightgbm")
    except ImportError:
        return None
    asked = [_Asked(query, found[query.qid]) for query in queries]
    if write:
        content = packed_trees(_fitted(lightgbm, asked))
        FILE.write_text(json.dumps(content, separators=(",", ":")) + "\n", "utf-8")
    by_fold = [
        Trees(packed_trees(_fitted(lightgbm, [one for one in asked if one.fold != fold])))
        for fold in range(FOLDS)
    ]
    return [one.judged_by(by_fold[one.fold]) for one in asked]


def _fitted(lightgbm: Any, asked: Sequence[_Asked]) -> dict[str, Any]:
    kept = [one for one in asked if one.inputs is not None and any(one.gains)]
    data = lightgbm.Dataset(
        np.concatenate([one.inputs for one in kept]),
        np.concatenate([one.gains for one in kept]),
        group=[len(one.ids) for one in kept],
    )
    model: dict[str, Any] = lightgbm.train(_PARAMETERS, data, _TREES).dump_model()
    return model
