"""The revisions of StatefulSets and DaemonSets."""

import msgspec

from gangline.api.resources import STATEFUL_SETS
from gangline.cluster.controllers.apps.plan import WorkloadObject
from gangline.cluster.controllers.apps.revisions import plan_revisions


def test_the_data_of_a_revision_is_as_clients_in_go_write_it():
    template = {"spec": {"x": 1}, "metadata": {"labels": {"b": "2", "a": "1"}}}
    owner = msgspec.convert({"metadata": {"name": "web"}, "spec": {"template": template}}, WorkloadObject)

    made = plan_revisions(STATEFUL_SETS, owner, [], ()).update

    want = '{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"a":"1","b":"2"}},"spec":{"x":1}}}}'
    assert msgspec.json.encode(made.data).decode() == want
