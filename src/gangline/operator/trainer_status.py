"""Takes from the pods of TrainJobs how far they are, and writes it into ``status.trainerStatus``.

The protocol is Kubeflow Trainer's (2.3.0): POST of ``{"trainerStatus": ...}`` with the token of the pod. Who
asks is found by a TokenReview for the audience of that one job, and has to be a pod of it that is there. Only
the API server is asked, so that an operator that stands by answers as the one that leads does.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec

from gangline import clock
from gangline.api.core import AnyObject, Wire
from gangline.api.resources import JOB_SETS, JOBS, PODS, TOKEN_REVIEWS, TRAINJOBS
from gangline.api.trainer.job import TrainerStatus
from gangline.clock import format_time
from gangline.jobs.training.status_access import status_path, token_audience
from gangline.kube.errors import ApiError, Conflict, Invalid, NotFound
from gangline.kube.http_paths import PathAnswer, Posted
from gangline.kube.verbs import ObjectClient

REVIEW_KEPT_S: Final = 60.0
REFUSAL_KEPT_S: Final = 1.0
"""An API server refuses a good token while it still has the pod before, of the same name, in sight."""
REVIEWS_KEPT: Final = 1024
"""Answers about tokens that are remembered: a step of training is no question to the API server."""
WRITES_IN_FLIGHT_MAX: Final = 8
_EXTRA: Final = "authentication.kubernetes.io/"
_MAKERS: Final = {resource.kind: resource for resource in (JOBS, JOB_SETS)}
"""Between a pod and the TrainJob that a JobSet runs."""


class Told(Wire, frozen=True, kw_only=True):
    """What a pod says."""

    trainer_status: TrainerStatus | None = None


class _Pod(NamedTuple):
    """A pod, or what made it."""

    name: str
    uid: str


class TrainerStatusDesk:
    """Answers messages; see ``kube.http_paths.serve_posts``.

    Args:
        client: asks who has a token and whose pod that is, and writes the status.
    """

    def __init__(self, client: ObjectClient) -> None:
        self._client = client
        self._reviews: OrderedDict[tuple[str, str], tuple[float, _Pod | None]] = OrderedDict()
        self._writes = asyncio.Semaphore(WRITES_IN_FLIGHT_MAX)

    async def take(self, posted: Posted) -> PathAnswer:
        """Answer one message."""
        words = posted.path.split("/")
        if len(words) < 3 or posted.path != status_path(words[-4], words[-2]):
            return _answer(HTTPStatus.NOT_FOUND, f"served: {status_path('NAMESPACE', 'NAME')}")
        namespace, name = words[-4], words[-2]
        kind, _, token = posted.headers.get("Authorization", "").partition(" ")
        try:
            pod = await self._pod_of(token, token_audience(namespace, name)) if kind == "Bearer" else None
            if pod is None:
                return _answer(HTTPStatus.UNAUTHORIZED, "send the token of KUBEFLOW_TRAINER_SERVER_TOKEN")
            uid = await self._job_of(pod, namespace, name)
            if not uid:
                return _answer(HTTPStatus.FORBIDDEN, f"pod {pod.name} is none of TrainJob {namespace}/{name}")
            told = msgspec.json.decode(posted.body, type=Told)
            if told.trainer_status is not None:
                await self._write(namespace, name, uid, told.trainer_status)
        except msgspec.MsgspecError as error:
            return _answer(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
        except Invalid as error:
            return _answer(HTTPStatus.UNPROCESSABLE_ENTITY, error.message)
        except (NotFound, Conflict) as error:  # of the pod, or another job has its name by now
            return _answer(HTTPStatus.FORBIDDEN, error.message)
        except ApiError as error:
            return _answer(HTTPStatus.SERVICE_UNAVAILABLE, error.message)
        return _answer(HTTPStatus.OK, "")

    async def _pod_of(self, token: str, audience: str) -> _Pod | None:
        """Return whose token it is; None for one that is not good for that audience."""
        key, now_s = (token, audience), time.monotonic()
        known = self._reviews.get(key)
        if known and now_s - known[0] < (REVIEW_KEPT_S if known[1] else REFUSAL_KEPT_S):
            return known[1]
        review = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "spec": {"token": token, "audiences": [audience]},
        }
        status = (await self._client.create(TOKEN_REVIEWS, review)).get("status") or {}
        extra = (status.get("user") or {}).get("extra") or {}
        names, uids = (extra.get(f"{_EXTRA}{what}") for what in ("pod-name", "pod-uid"))
        is_good = status.get("authenticated") and audience in (status.get("audiences") or ())
        pod = _Pod(names[0], uids[0]) if is_good and names and uids else None
        self._reviews[key] = (now_s, pod)
        while len(self._reviews) > REVIEWS_KEPT:
            self._reviews.popitem(last=False)
        return pod

    async def _job_of(self, pod: _Pod, namespace: str, name: str) -> str:
        """Return the uid of the TrainJob of that name that a pod belongs to; empty where it does not.

        Raises:
            NotFound: the pod is gone, or what made it.
        """
        resource, wanted = PODS, pod
        while True:
            found: Any = await self._client.get(resource, wanted.name, namespace)
            meta = msgspec.convert(found, AnyObject).metadata
            maker = meta.controller if meta.uid == wanted.uid else None
            if maker is None:
                return ""
            if maker.kind == TRAINJOBS.kind:
                return maker.uid if maker.name == name else ""
            if maker.kind not in _MAKERS:
                return ""
            resource, wanted = _MAKERS[maker.kind], _Pod(maker.name, maker.uid)

    async def _write(self, namespace: str, name: str, uid: str, told: TrainerStatus) -> None:
        """Put what was told in the place of what was told before."""
        kept = dict.fromkeys(TrainerStatus.__struct_encode_fields__)
        time_ = {"lastUpdatedTime": told.last_updated_time or format_time(clock.now())}
        status = {"trainerStatus": {**kept, **msgspec.to_builtins(told), **time_}}
        body = {"metadata": {"uid": uid}, "status": status}
        async with self._writes:
            await self._client.patch(TRAINJOBS, name, body, namespace, subresource="status")


def _answer(status: HTTPStatus, text: str) -> PathAnswer:
    return PathAnswer(status, f"{text}\n".encode() if text else b"")
