"""Tests of extensions/meaning/trees.py and of what meanings.py fuses."""

from __future__ import annotations

import json

import numpy as np
import pytest

from skillhouse.extensions.meaning.meanings import fused
from skillhouse.extensions.meaning.trees import FILE, INPUTS, Trees, load_trees, packed_trees
from skillhouse.retrieval.confidence import confidence
from skillhouse.retrieval.evidence import FEATURES, Evidence, score


def row(number: int, share: float, **cosines: float) -> Evidence:
    features = (share,) * len(FEATURES)
    made = Evidence(number, features, score(features), {}, ())
    return fused(made, cosines)


MODEL = {
    "tree_info": [
        {
            "tree_structure": {
                "split_feature": INPUTS.index("granite"),
                "threshold": 0.5,
                "left_child": {"leaf_value": -1.0},
                "right_child": {
                    "split_feature": INPUTS.index("words below"),
                    "threshold": -0.25,
                    "left_child": {"leaf_value": 1.0},
                    "right_child": {"leaf_value": 2.0},
                },
            }
        },
        {"tree_structure": {"leaf_value": 0.5}},
    ]
}


def test_a_row_gets_the_sum_of_its_leaves() -> None:
    trees = Trees(packed_trees(MODEL))
    rows = np.zeros((3, len(INPUTS)), np.float32)
    rows[:, INPUTS.index("granite")] = 0.4, 0.6, 0.6
    rows[:, INPUTS.index("words below")] = 0.0, -1.0, 0.0
    assert trees.scores(rows) == pytest.approx([-0.5, 1.5, 2.5])


def test_the_best_by_trees_has_the_highest_score() -> None:
    trees = Trees(packed_trees(MODEL))
    judged = [row(0, 0.5, use=0.9, granite=0.1), row(1, 0.1, use=0.1, granite=0.8)]
    by_trees = trees.ordered(judged)
    assert judged[0].score > judged[1].score
    assert by_trees[0].score < by_trees[1].score < 101
    assert [confidence(each, 1_000) for each in by_trees] == [
        confidence(each, 1_000) for each in judged
    ]


@pytest.mark.parametrize("cosines", [{}, {"use": 0.5}, {"use": 0.5, "granite": 0.5, "own": 0.5}])
def test_rows_with_other_votes_keep_their_scores(cosines: dict[str, float]) -> None:
    judged = [row(0, 0.5, **cosines)]
    assert Trees(packed_trees(MODEL)).ordered(judged) == judged


def test_trees_of_other_inputs_are_refused() -> None:
    content = json.loads(FILE.read_text("utf-8"))
    with pytest.raises(ValueError, match="fit them again"):
        Trees({**content, "inputs": content["inputs"][1:]})


def test_the_shipped_trees_prefer_what_fits() -> None:
    fits, not_at_all = load_trees().ordered(
        [row(0, 0.6, use=0.6, granite=0.85), row(1, 0.05, use=0.05, granite=0.5)]
    )
    assert fits.score > not_at_all.score + 10


def test_a_higher_cosine_is_a_higher_score_and_confidence() -> None:
    for name in ("use", "granite", "own"):
        low, high = (row(0, 0.2, **{name: cosine}) for cosine in (0.1, 0.7))
        assert low.score < high.score <= 100
        assert confidence(low, 1_000) <= confidence(high, 1_000)
    plain = row(0, 0.2)
    assert plain.fused is None
    assert plain.score == fused(plain, {}).score


def test_where_both_encoders_vote_each_cosine_counts_for_the_confidence() -> None:
    neither, of_use, of_granite, both = (
        confidence(row(0, 0.1, use=use, granite=granite), 1_000)
        for use, granite in ((0.2, 0.2), (0.5, 0.2), (0.2, 0.5), (0.5, 0.5))
    )
    assert neither < min(of_use, of_granite) < max(of_use, of_granite) < both
    # Another's encoder has no part in it, though it votes.
    assert confidence(row(0, 0.1, use=0.2, granite=0.2, own=0.9), 1_000) == neither
