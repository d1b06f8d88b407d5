"""Defaults of the kinds that are stored only, as values.

In a template an object fills in what is missing, down to its leaves; a list of one item fills every item that
there is; a key that ends with ``?`` fills an object only where there is one. A function makes a value of what
is there.
Source: the defaulting of kube-apiserver (pkg/apis/*/v1/defaults.go).
"""

from __future__ import annotations

from typing import Any

from gangline.cluster.server.rules.pod_defaults import pod_spec

Template = dict[str, Any]

_RULES: Template = {"rules": [{"scope": "*"}]}
_WEBHOOK: Template = {
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "timeoutSeconds": 10,
    "failurePolicy": "Fail",
    **_RULES,
    "clientConfig?": {"service?": {"port": 443}},
}
_MATCH: Template = {
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "resourceRules": [{"scope": "*"}],
    "excludeResourceRules": [{"scope": "*"}],
}
_DEVICES: Template = {"devices": {"requests": [{"exactly?": {"allocationMode": "ExactCount", "count": 1}}]}}
_POD_TEMPLATE: Template = {"metadata": {}, "spec": lambda spec: pod_spec(spec or {})}
_CPU = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}

_BY_KIND: dict[tuple[str, str], Template] = {
    ("", "PodTemplate"): {"template": _POD_TEMPLATE},
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): {
        "webhooks": [{**_WEBHOOK, "reinvocationPolicy": "Never"}]
    },
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): {"webhooks": [_WEBHOOK]},
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): {
        "spec": {"failurePolicy": "Fail", "matchConstraints?": _MATCH}
    },
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): {
        "spec": {"matchResources?": _MATCH, "paramRef?": {"parameterNotFoundAction": "Deny"}}
    },
    ("apiextensions.k8s.io", "CustomResourceDefinition"): {"spec": {"conversion": {"strategy": "None"}}},
    ("apiregistration.k8s.io", "APIService"): {"spec": {"service?": {"port": 443}}},
    ("autoscaling", "HorizontalPodAutoscaler"): {
        "spec": {"minReplicas": 1},
    },
    ("batch", "CronJob"): {
        "spec": {
            "concurrencyPolicy": "Allow",
            "suspend": False,
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 1,
            "jobTemplate?": {"metadata": {}, "spec": {"template": _POD_TEMPLATE}},
        }
    },
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): {"spec": {"matchingPrecedence": 1000}},
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): {
        "spec": {
            "limited?": {
                "nominalConcurrencyShares": 30,
                "lendablePercent": 0,
                "limitResponse": {
                    "type": "Reject",
                    "queuing?": {"queues": 64, "handSize": 8, "queueLengthLimit": 50},
                },
            }
        }
    },
    ("networking.k8s.io", "NetworkPolicy"): {
        "spec": {
            "ingress": [{"ports": [{"protocol": "TCP"}]}],
            "egress": [{"ports": [{"protocol": "TCP"}]}],
        }
    },
    ("policy", "PodDisruptionBudget"): {
        "status": {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
    },
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): {
        "roleRef?": {"apiGroup": "rbac.authorization.k8s.io"}
    },
    ("rbac.authorization.k8s.io", "RoleBinding"): {"roleRef?": {"apiGroup": "rbac.authorization.k8s.io"}},
    ("resource.k8s.io", "ResourceClaim"): {"spec": _DEVICES},
    ("resource.k8s.io", "ResourceClaimTemplate"): {"spec": {"spec": _DEVICES}},
    ("resource.k8s.io", "ResourceSlice"): {"spec": {"pool?": {"generation": 0}}},
    ("storage.k8s.io", "VolumeAttachment"): {"status": {"attached": False}},
    ("storage.k8s.io", "CSIDriver"): {
        "spec": {
            "attachRequired": True,
            "podInfoOnMount": False,
            "storageCapacity": False,
            "fsGroupPolicy": "ReadWriteOnceWithFSType",
            "requiresRepublish": False,
            "seLinuxMount": False,
            "volumeLifecycleModes": lambda modes: modes or ["Persistent"],
        }
    },
}


def stored_defaults(group: str, kind: str, obj: dict[str, Any]) -> dict[str, Any]:
    """Return the object with the defaults of its kind; one without any comes back as it is."""
    template = _BY_KIND.get((group, kind))
    if template is None:
        return obj
    result: dict[str, Any] = _filled(obj, template)
    if kind == "HorizontalPodAutoscaler" and not result["spec"].get("metrics"):
        result["spec"]["metrics"] = [{"type": "Resource", "resource": _CPU}]
    if kind == "NetworkPolicy" and not (result.get("spec") or {}).get("policyTypes"):
        spec = result["spec"]
        result["spec"] = {**spec, "policyTypes": ["Ingress", *(["Egress"] if "egress" in spec else [])]}
    return result


def _filled(value: Any, template: Any) -> Any:
    if callable(template):
        return template(value)
    if isinstance(template, list):
        return [_filled(item, template[0]) for item in value] if isinstance(value, list) else value
    if not isinstance(template, dict):
        return template if value is None else value
    result = dict(value) if isinstance(value, dict) else {}
    for key, below in template.items():
        name = key.rstrip("?")
        if (key != name or isinstance(below, list)) and name not in result:
            continue
        result[name] = _filled(result.get(name), below)
    return result
