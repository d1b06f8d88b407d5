"""Asks the scheduler why a gang waits, where it can be asked."""

from __future__ import annotations

import asyncio
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec

from gangline.kube.errors import ApiError
from gangline.scheduler.explained.answers import PATH, AnswersAt, SchedulerAnswer, WhyQuestion

if TYPE_CHECKING:
    from gangline.kube.verbs import ObjectClient

ANSWER_TIMEOUT_S = 10.0


async def ask(client: ObjectClient, where: AnswersAt, question: WhyQuestion) -> SchedulerAnswer | None:
    """Return what the scheduler answers; None where it cannot be reached, or may not be asked.

    Args:
        client: of the cluster.
        where: it is asked.
        question: what is asked.
    """
    try:
        if where.path:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                said = await client.request("GET", where.path, params=question.parameters)
            found = msgspec.convert(said, SchedulerAnswer)
        else:
            body = await asyncio.to_thread(_get, where.port, f"{PATH}?{urlencode(question.parameters)}")
            found = msgspec.json.decode(body, type=SchedulerAnswer)
    except (ApiError, OSError, HTTPException, msgspec.MsgspecError):
        return None
    return found if found.holder == where.holder else None  # another one listens there now


def _get(port: int, target: str) -> bytes:
    connection = HTTPConnection("127.0.0.1", port, timeout=ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", target)
        answer = connection.getresponse()
        if answer.status != 200:
            raise HTTPException(f"answered with {answer.status}")
        return answer.read()
    finally:
        connection.close()
