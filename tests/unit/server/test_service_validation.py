"""Where Services and EndpointSlices may lead: the rules of kube-apiserver's validation of both."""

import pytest

from gangline.api import resources as r
from gangline.cluster.server.rules.defaults import apply_defaults
from gangline.cluster.server.rules.validation import validate


def complete(resource, obj):
    return apply_defaults(resource, {"metadata": {"name": "x", "uid": "u"}, **obj})


def told(errors):
    return [(error.reason, error.path) for error in errors]


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"clusterIP": "10.96.3.4"}, []),
        ({"clusterIP": "None"}, []),
        ({"clusterIP": "8.8.8.8"}, [("Invalid", "spec.clusterIPs[0]")]),
        ({"clusterIP": "127.0.0.1"}, [("Invalid", "spec.clusterIPs[0]")]),
        ({"clusterIP": "fd00::1"}, [("Invalid", "spec.clusterIPs[0]")]),
        ({"type": "ExternalName", "externalName": "data.example."}, []),
        ({"type": "ExternalName", "externalName": "a b"}, [("Invalid", "spec.externalName")]),
        ({"type": "ExternalName", "externalName": "a" * 300}, [("Invalid", "spec.externalName")]),
    ],
)
def test_services_take_addresses_of_services_alone(spec, want):
    service = complete(r.SERVICES, {"spec": {"ports": [{"port": 80}], **spec}})

    assert told(validate(r.SERVICES, service)) == want


def test_the_service_of_the_api_server_is_where_that_listens():
    spec = {"clusterIP": "10.213.0.1", "ports": [{"port": 443}]}
    service = complete(r.SERVICES, {"metadata": {"name": "kubernetes", "namespace": "default"}, "spec": spec})

    assert validate(r.SERVICES, service) == []


@pytest.mark.parametrize(
    ("kind", "endpoint", "want"),
    [
        ("IPv4", {"addresses": ["10.1.2.3"], "hostname": "web-0"}, []),
        ("IPv6", {"addresses": ["fd00::1"]}, []),
        ("FQDN", {"addresses": ["web.example"]}, []),
        ("", {"addresses": ["10.1.2.3"]}, [("Required", "addressType")]),
        ("IPv5", {"addresses": ["10.1.2.3"]}, [("NotSupported", "addressType")]),
        ("IPv4", {"addresses": []}, [("Required", "endpoints[0].addresses")]),
        ("IPv4", {"addresses": ["web"]}, [("Invalid", "endpoints[0].addresses[0]")]),
        ("IPv4", {"addresses": ["fd00::1"]}, [("Invalid", "endpoints[0].addresses[0]")]),
        ("IPv4", {"addresses": ["127.77.0.2"]}, []),
        ("IPv4", {"addresses": ["169.254.169.254"]}, [("Invalid", "endpoints[0].addresses[0]")]),
        ("IPv4", {"addresses": ["0.0.0.0"]}, [("Invalid", "endpoints[0].addresses[0]")]),
        ("IPv4", {"addresses": ["224.0.0.1"]}, [("Invalid", "endpoints[0].addresses[0]")]),
        ("IPv4", {"addresses": ["10.1.2.3"], "hostname": "a.b"}, [("Invalid", "endpoints[0].hostname")]),
    ],
)
def test_slices_lead_to_addresses_that_pods_can_have(kind, endpoint, want):
    made = complete(
        r.ENDPOINT_SLICES, {"addressType": kind, "endpoints": [endpoint], "ports": [{"port": 80}]}
    )

    assert told(validate(r.ENDPOINT_SLICES, made)) == want


@pytest.mark.parametrize(
    ("subset", "want"),
    [
        ({"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80}]}, []),
        ({"notReadyAddresses": [{"ip": "fd00::1"}]}, []),
        ({"ports": [{"port": 80}]}, [("Required", "subsets[0]")]),
        ({"addresses": [{"ip": "nonsense"}]}, [("Invalid", "subsets[0].addresses[0].ip")]),
        ({"addresses": [{"ip": "169.254.169.254"}]}, [("Invalid", "subsets[0].addresses[0].ip")]),
        (
            {"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 70000}]},
            [("Invalid", "subsets[0].ports[0].port")],
        ),
        (
            {"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80}, {"name": "b", "port": 81}]},
            [("Required", "subsets[0].ports[0].name")],
        ),
    ],
)
def test_endpoints_lead_to_addresses_that_pods_can_have(subset, want):
    made = complete(r.ENDPOINTS, {"subsets": [subset]})

    assert told(validate(r.ENDPOINTS, made)) == want
