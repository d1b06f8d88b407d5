"""What a type checker knows of both clients: read by mypy alone, nothing of it runs.

A mistake that it does not find is an unused `type: ignore`, which is an error.
"""

import gangline
from gangline import client


def double(number: int) -> int:
    return 2 * number


def of_scripts(found: gangline.Client) -> None:
    numbers: list[int] = found.run(double, 2, args=(1,))
    program: gangline.JobHandle = found.run(["python", "train.py"], ranks=2, nodes=2)
    jobs: list[gangline.JobHandle] = found.jobs(all_namespaces=True)
    lines: list[str] = list(jobs[len(numbers)].logs(follow=True))
    gangline.Client(contxt=lines[0])  # type: ignore[call-arg]
    found.run(double, rank=2)  # type: ignore[call-overload]
    found.run(["a"], nods=2)  # type: ignore[call-overload]
    found.jobs(True)  # type: ignore[misc]
    program.wait("1")  # type: ignore[arg-type]


async def of_loops(found: client.AsyncClient) -> None:
    numbers: list[int] = await found.run(double, 2, args=(1,))
    program: client.AsyncJobHandle = await found.run(["python", "train.py"], ranks=len(numbers))
    await program.wait("1")  # type: ignore[arg-type]
