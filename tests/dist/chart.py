"""Lints the chart and renders it: what it makes is what the cluster's policies ask for, and wrong values are refused.

Usage: chart.py CHART CONFIG
"""
import json
import sys
from pathlib import Path

import yaml
from helm_python import Chart, HelmError, lint

folder, config = sys.argv[1], Path(sys.argv[2]).read_text()
values = {"config": config, "databaseSecret": "dvp-db-app", "bankClaim": "bank", "podMonitor": True, "pullSecrets": ["pull"]}
report = lint(folder, values, strict=True)
serious = [message for message in report["messages"] if message["severity"] >= 2]
assert not serious and not report["errors"], report

with Chart.load(folder) as chart:
    rendered = chart.render(values, name="quiet", namespace="dvp")
    manifests = [text for name, text in rendered.items() if name.endswith(".yaml")]
    objects = [one for text in manifests for one in yaml.safe_load_all(text) if one]
    for wrong in ({"config": ""}, {**values, "replicas": 2}, {**values, "roles": {"api": {"replicas": -1}}},
                  {**values, "roles": {"boss": {"replicas": 1}}}):
        try:
            chart.validate_schema(chart.merge_values(wrong))
        except HelmError:
            continue
        raise SystemExit(f"taken: {json.dumps(wrong)[:80]}")

of = lambda kind: {one["metadata"]["name"]: one for one in objects if one.get("kind") == kind}
roles = ["api", "console", "fix", "indexer", "worker"]
assert sorted(of("Deployment")) == [f"quiet-dvp-{role}" for role in roles] == sorted(of("PodDisruptionBudget"))
assert sorted(of("Service")) == [f"quiet-dvp-{role}" for role in ("api", "console", "fix")]
pods = {name: one["spec"]["template"]["spec"] for name, one in {**of("Deployment"), **of("Job")}.items()}
for name, pod in pods.items():
    container = pod["containers"][0]
    assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"], name
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"], name
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}, name
    assert ("bank" in mounted) == (name == "quiet-dvp-worker"), name
    uri = [one for one in container["env"] if one["name"] == "DVP_DATABASE_URL"]
    assert uri[0]["valueFrom"]["secretKeyRef"] == {"name": "dvp-db-app", "key": "uri"}, name
for name, one in of("Deployment").items():
    container = pods[name]["containers"][0]
    assert container["lifecycle"]["preStop"]["sleep"]["seconds"] < one["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert container["args"] == ["serve", "--config", "/etc/dvp/dvp.toml", "--roles", name.removeprefix("quiet-dvp-")]
    ports = {port["name"] for port in container["ports"]}
    assert {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} <= ports, name
    labels = one["spec"]["template"]["metadata"]["labels"]
    assert one["spec"]["selector"]["matchLabels"] == labels
    assert of("PodDisruptionBudget")[name]["spec"]["selector"]["matchLabels"] == labels
    service = of("Service").get(name)
    assert service is None or service["spec"]["selector"] == labels and service["spec"]["ports"][0]["targetPort"] in ports
maps = of("ConfigMap")
assert all(one["data"]["dvp.toml"].strip() == config.strip() for one in maps.values()) and len(maps) == 2
migrate = pods["quiet-dvp-migrate"]
assert migrate["containers"][0]["args"][0] == "migrate" and migrate["serviceAccountName"] == "default"
assert {"configMap": {"name": "quiet-dvp-migrate"}, "name": "config"} in migrate["volumes"]
print(f"chart: {len(objects)} objects")
