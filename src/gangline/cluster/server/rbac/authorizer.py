"""Whether a caller may do something: the administrator all, everybody else what roles and bindings say.

A service account that no binding names may do everything in its own namespace and read what is in none, so
that jobs need no roles on one machine. One that a binding names has what its bindings give, as on any
cluster: what an operator's manifests forget shows here, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gangline.cluster.server import status_errors
from gangline.cluster.server.http.auth import READ_VERBS, Caller
from gangline.cluster.server.rbac import rules as rbac
from gangline.cluster.server.rbac.rules import GROUP, AccessAttributes, Grant, Subject
from gangline.cluster.server.registry import RequestTarget
from gangline.cluster.server.store.events import Change
from gangline.cluster.server.store.store import Store

_ACCOUNTS = "system:serviceaccounts:"
"""How the group of all accounts of a namespace begins."""
_REVIEWS = ("authorization.k8s.io", "authentication.k8s.io")
_KINDS = ("roles", "clusterroles", "rolebindings", "clusterrolebindings")


class Authorizer:
    """The grants of one cluster, arranged by subject; made anew after roles or bindings have changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._made: dict[Subject, list[Grant]] | None = None
        for plural in _KINDS:
            store.ring.listen(f"{GROUP}/{plural}", self._forget)

    def _forget(self, _: Change) -> None:
        self._made = None

    def may(self, caller: Caller, wanted: AccessAttributes) -> bool:
        """Whether the caller may. Cost: O(rules given to the caller)."""
        if caller.is_admin:
            return True
        if wanted.group in _REVIEWS and wanted.resource.startswith("self"):
            return True
        if any(grant.allows(wanted) for grant in self.grants(caller)):
            return True
        own = self._own_namespaces(caller)
        if not own or wanted.path or wanted.group in _REVIEWS:
            return False
        return wanted.namespace in own if wanted.is_namespaced else wanted.verb in READ_VERBS

    def _own_namespaces(self, caller: Caller) -> set[str]:
        """Return where a caller whom no binding names may do everything; its groups say where it is from."""
        if ("User", caller.name) in self._by_subject():
            return set()
        return {group.removeprefix(_ACCOUNTS) for group in caller.groups if group.startswith(_ACCOUNTS)}

    def grants(self, caller: Caller) -> Iterator[Grant]:
        """Yield what bindings give a caller, as a user and by its groups."""
        by_subject = self._by_subject()
        yield from by_subject.get(("User", caller.name), ())
        for group in caller.groups:
            yield from by_subject.get(("Group", group), ())

    def rules(self, caller: Caller, namespace: str) -> list[Mapping[str, Any]]:
        """Return the rules that hold for a caller in a namespace."""
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        if caller.is_admin:
            return [everything, {"verbs": ["*"], "nonResourceURLs": ["*"]}]
        found = [
            rule
            for grant in self.grants(caller)
            if grant.namespace in (rbac.EVERYWHERE, namespace)
            for rule in grant.rules
        ]
        return [everything, *found] if namespace in self._own_namespaces(caller) else found

    def check_gift(self, caller: Caller, target: RequestTarget, state: Mapping[str, Any]) -> None:
        """Refuse a role with rights that its writer lacks, and a binding of such a role.

        Args:
            caller: who writes.
            target: what is written.
            state: the role or binding as it would be; objects of other kinds pass.

        Raises:
            StatusError: 403.
        """
        resource, namespace = target.served.resource, target.namespace
        if caller.is_admin or resource.group != GROUP:
            return
        if resource.kind.endswith("Binding"):
            rules, verb = self._referenced(state, namespace), "bind"
            plural, name = _role_place(state.get("roleRef") or {})
        else:
            rules, verb = rbac.rules_of(state, self._objects("clusterroles")), "escalate"
            plural, name = resource.plural, str((state.get("metadata") or {}).get("name") or "")
        gift = AccessAttributes(verb, GROUP, plural, "", namespace, name, is_namespaced=resource.namespaced)
        if self.may(caller, gift):
            return
        for rule in rules:
            if not all(self.may(caller, wanted) for wanted in rbac.attributes_of(rule, namespace)):
                cause = f'user "{caller.name}" is attempting to grant RBAC permissions not currently held: '
                raise status_errors.refused(target.served, name, f"{cause}{dict(rule)}")

    def _objects(self, plural: str) -> list[dict[str, Any]]:
        return [entry.obj for entry in self._store.entries(f"{GROUP}/{plural}")]

    def _referenced(self, binding: Mapping[str, Any], namespace: str) -> tuple[rbac.Rule, ...]:
        """Return the rules of the role that a binding refers to; none where it is not there."""
        plural, name = _role_place(binding.get("roleRef") or {})
        found = self._store.get(f"{GROUP}/{plural}", namespace if plural == "roles" else "", name)
        return () if found is None else rbac.rules_of(found.obj, self._objects("clusterroles"))

    def _by_subject(self) -> dict[Subject, list[Grant]]:
        if self._made is None:
            made: dict[Subject, list[Grant]] = {}
            for plural in ("rolebindings", "clusterrolebindings"):
                for binding in self._objects(plural):
                    namespace = str(binding["metadata"].get("namespace") or "")
                    grant = Grant(namespace, self._referenced(binding, namespace))
                    for subject in rbac.subjects_of(binding):
                        made.setdefault(subject, []).append(grant)
            self._made = made
        return self._made


def _role_place(reference: Mapping[str, Any]) -> tuple[str, str]:
    """Return plural and name of what a ``roleRef`` refers to."""
    return f"{str(reference.get('kind') or '').lower()}s", str(reference.get("name") or "")
