"""deploy/grafana.json asks for nothing that the service or OpenTelemetry does not emit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from skillhouse.approval import Answer
from skillhouse.extensions.server.api.metrics import BUCKETS
from skillhouse.floor.tracing import COUNTERS, HISTOGRAMS, INSTANCE, TOOL_NAME
from skillhouse.permission import Effect, Layer, Rule
from tests.extensions.server.api.place import API, client_of, make_house

DASHBOARD = Path(__file__).resolve().parents[1] / "deploy/grafana.json"
BOARD: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
METRIC = re.compile(r"\b((?:skillhouse|gen_ai)_[a-z0-9_]+)\b(?=[{,])")
LABEL = re.compile(r"\bby \(([^)]*)\)|\{\{([a-z_]+)\}\}|\{([a-z_]+)=~")
UNITS = {"s": "_seconds", "{call}": ""}
OF_PROMETHEUS = frozenset({"instance", "le"})
"""Labels that the collector adds."""


def expressions() -> list[str]:
    """Return what the panels and the lists of values ask for."""
    targets = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
    queries = [one["definition"] for one in BOARD["templating"]["list"] if "definition" in one]
    return [*targets, *queries]


def names(text: str) -> set[str]:
    return set(METRIC.findall(text.replace("{instance", "{").replace("{service", "{")))


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What /metrics says after a call that ran, one that a rule denied, and an answered one."""
    rules = (Rule(effect=Effect.DENY, action="exec", pattern="git push *"),)
    base = tmp_path_factory.mktemp("grafana")
    house = make_house(base, layers=(Layer(name="user", rules=rules),))
    client = client_of(house)
    client.get(f"{API}/metrics")
    house.call_sync("skill", {"name": "notes"})
    house.call_sync("exec", {"command": "git push origin"})
    question = house.call_sync("write", {"path": "a", "content": "b"}).approval_id
    assert question
    nonce = house.approvals.get(question).request.nonce
    house.approvals.answer(question, Answer.NO, by="local", channel="page", nonce=nonce)
    text: str = client.get(f"{API}/metrics").text
    house.close()
    return text


def emitted(exposed: str) -> set[str]:
    """Return the names of samples: of the service's own, and as OpenTelemetry's are translated."""
    own = {
        line.partition("{")[0].partition(" ")[0] for line in exposed.splitlines() if line[:1] != "#"
    }
    found = {name for name in own if name}
    for name, (unit, _) in COUNTERS.items():
        found.add(f"{name.replace('.', '_')}{UNITS[unit]}_total")
    for name, (unit, _) in HISTOGRAMS.items():
        found |= {
            f"{name.replace('.', '_')}{UNITS[unit]}_{part}" for part in ("bucket", "sum", "count")
        }
    return found


def test_every_metric_of_the_dashboard_is_one_that_is_emitted(exposed: str) -> None:
    asked = {name for text in expressions() for name in names(text)}
    assert len(asked) >= 14
    assert asked - emitted(exposed) == set()


def test_every_expression_asks_for_a_metric() -> None:
    assert [text for text in expressions() if not names(text)] == []


def test_a_metric_that_is_not_there_is_found(exposed: str) -> None:
    (invented,) = names('sum(rate(skillhouse_invented_total{instance=~"$instance"}[5m]))')
    assert invented not in emitted(exposed)


def test_every_label_of_the_dashboard_is_one_of_the_metrics(exposed: str) -> None:
    known = set(re.findall(r'([a-z_]+)="', exposed)) | OF_PROMETHEUS
    known |= {INSTANCE.replace(".", "_"), TOOL_NAME.replace(".", "_")}
    texts = [
        *expressions(),
        *(target["legendFormat"] for panel in BOARD["panels"] for target in panel["targets"]),
    ]
    found = {
        part.strip()
        for text in texts
        for match in LABEL.findall(text)
        for part in ",".join(filter(None, match)).split(",")
    }
    assert {"instance", "status", "le"} <= found
    assert found - known == set()


def test_histograms_are_asked_for_by_their_buckets(exposed: str) -> None:
    assert f'le="{BUCKETS[0]:g}"' in exposed
    quantiles = [text for text in expressions() if "histogram_quantile" in text]
    assert quantiles
    assert all("_bucket" in text and "by (le)" in text for text in quantiles)


def test_panels_do_not_cover_each_other() -> None:
    taken: dict[tuple[int, int], int] = {}
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert x < 24
                assert taken.setdefault((x, y), panel["id"]) == panel["id"]
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
