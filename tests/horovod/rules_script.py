"""Run in every rank: each function holds one rule of Horovod's semantics; the arguments choose some of
them.
"""

from __future__ import annotations

import os
import sys
import time

import torch

import horovod.torch as hvd


def raises(kinds, call) -> str:
    try:
        call()
    except kinds as error:
        return str(error)
    raise AssertionError(f"nothing was raised, wanted {kinds}")


def rule_01_names_match_in_any_order() -> None:
    names = list(range(20)) if hvd.rank() == 0 else list(reversed(range(20)))
    for _ in range(3):  # the second time from memory
        handles = {
            n: hvd.allreduce_async(torch.full((n + 1,), float(n)), name=f"x{n}", op=hvd.Sum) for n in names
        }
        for n, handle in handles.items():
            assert torch.equal(hvd.synchronize(handle), torch.full((n + 1,), float(n * hvd.size())))


def rule_02_unnamed_calls_match_by_order() -> None:
    first, second = hvd.allreduce_async(torch.ones(2)), hvd.allreduce_async(torch.ones(3))
    assert hvd.synchronize(first).shape == (2,) and hvd.synchronize(second).shape == (3,)


def rule_03_a_name_in_flight_is_refused() -> None:
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(torch.ones(2), name="twice")
        raises(ValueError, lambda: hvd.allreduce_async(torch.ones(2), name="twice"))
    hvd.barrier()
    if hvd.rank() != 0:
        handle = hvd.allreduce_async(torch.ones(2), name="twice")
    hvd.synchronize(handle)
    hvd.allreduce(torch.ones(2), name="twice")


def rule_04_disagreement_is_an_error_everywhere() -> None:
    odd = hvd.rank() % 2
    for name, call in {
        "shape": lambda: hvd.allreduce(torch.ones(2 + odd), name="shape"),
        "type": lambda: hvd.allreduce(torch.ones(2, dtype=[torch.float32, torch.int32][odd]), name="type"),
        "op": lambda: hvd.allreduce(torch.ones(2), name="op", op=[hvd.Sum, hvd.Max][odd]),
        "kind": lambda: [hvd.allreduce, hvd.allgather][odd](torch.ones(2), name="kind"),
        "root": lambda: hvd.broadcast(torch.ones(2), odd, name="root"),
    }.items():
        assert name in raises(RuntimeError, call)
    remembered = torch.ones(3)
    for _ in range(3):
        hvd.allreduce(remembered, name="known")
    raises(hvd.HorovodInternalError, lambda: hvd.allreduce(torch.ones(3 + odd), name="known"))
    hvd.allreduce(remembered, name="known")


def rule_04_names_that_come_again_are_looked_at_again() -> None:
    odd = hvd.rank() % 2
    layout, other = torch.ones(3, 2), torch.ones(2, 3)

    def reduced(*tensors) -> None:
        handles = [hvd.allreduce_async_(one, name=f"again{n}", op=hvd.Sum) for n, one in enumerate(tensors)]
        for handle in handles:
            hvd.synchronize(handle)

    for times in range(1, 4):
        ones = [torch.ones(3, 2), torch.ones(5)]
        reduced(*ones)
        assert all(torch.equal(one, torch.full_like(one, hvd.size())) for one in ones), times
    raises(hvd.HorovodInternalError, lambda: reduced([layout, other][odd]))
    raises(hvd.HorovodInternalError, lambda: reduced(layout.to([torch.float32, torch.float64][odd])))
    how = {"name": "again0", "op": [hvd.Sum, hvd.Max][odd]}
    raises(hvd.HorovodInternalError, lambda: hvd.synchronize(hvd.allreduce_async_(layout, **how)))
    raises(ValueError, lambda: reduced(other.t()))
    if hvd.rank() == 0:
        handle = hvd.allreduce_async_(layout, name="again0", op=hvd.Sum)
        raises(ValueError, lambda: hvd.allreduce_async_(layout, name="again0", op=hvd.Sum))
    hvd.barrier()
    if hvd.rank() != 0:
        handle = hvd.allreduce_async_(layout, name="again0", op=hvd.Sum)
    hvd.synchronize(handle)
    reduced(other.double())  # on all ranks: agreed anew
    reduced(other.double())


def rule_05_layout_and_type() -> None:
    raises(ValueError, lambda: hvd.allreduce(torch.ones(3, 4).t()))
    raises((ValueError, TypeError), lambda: hvd.allreduce(torch.ones(2, dtype=torch.complex64)))


def rule_06_average_is_the_default() -> None:
    mine = torch.full((3,), float(hvd.rank()))
    assert torch.equal(hvd.allreduce(mine), torch.full((3,), (hvd.size() - 1) / 2))
    assert torch.equal(hvd.allreduce(mine, average=False), hvd.allreduce(mine, op=hvd.Sum))
    raises(ValueError, lambda: hvd.allreduce(mine, average=True, op=hvd.Sum))
    whole = torch.tensor([2 * hvd.rank() + 1])
    assert hvd.allreduce(whole).item() == hvd.size()
    assert hvd.allreduce(whole // 2).item() == (hvd.size() - 1) // 2  # cut off


def rule_07_scales() -> None:
    for dtype in (torch.int32, torch.int64, torch.float32, torch.float64, torch.float16):
        value = torch.full((4,), 7).to(dtype)
        wanted = (value.double() * 0.3).to(dtype) * hvd.size()
        tolerance = 0.0 if dtype in (torch.int32, torch.int64) else 1e-3
        got = hvd.allreduce(value, op=hvd.Sum, prescale_factor=0.3)
        assert torch.allclose(got, wanted, rtol=tolerance), dtype
        wanted = ((value * hvd.size()).double() * 0.3).to(dtype)
        got = hvd.allreduce(value, op=hvd.Sum, postscale_factor=0.3)
        assert torch.allclose(got, wanted, rtol=tolerance), dtype


def rule_08_in_place() -> None:
    mine = torch.ones(3)
    assert hvd.allreduce_(mine, op=hvd.Sum) is mine and mine[0] == hvd.size()
    assert hvd.synchronize(hvd.allreduce_async_(torch.ones(5), op=hvd.Sum))[0] == hvd.size()
    large = torch.ones(600_000)
    assert hvd.allreduce_(large, op=hvd.Sum) is large and large[-1] == hvd.size()


def rule_09_allgather_of_different_lengths() -> None:
    got = hvd.allgather(torch.full((hvd.rank() + 1, 2), hvd.rank(), dtype=torch.int16))
    wanted = torch.cat([torch.full((r + 1, 2), r, dtype=torch.int16) for r in range(hvd.size())])
    assert torch.equal(got, wanted)
    shapes = "shapes after the first dimension"
    assert shapes in raises(RuntimeError, lambda: hvd.allgather(torch.ones(2, 2 + hvd.rank())))


def rule_10_alltoall() -> None:
    rank, size = hvd.rank(), hvd.size()
    got = hvd.alltoall(torch.arange(size) + 10 * rank)
    assert got.tolist() == [10 * other + rank for other in range(size)]
    splits = torch.arange(1, size + 1, dtype=torch.int32)
    got, received = hvd.alltoall(torch.full((int(splits.sum()) + 2,), rank), splits)
    assert received.tolist() == [rank + 1] * size and len(got) == size * (rank + 1)
    raises(RuntimeError, lambda: hvd.alltoall(torch.ones(size + 1)))
    raises(RuntimeError, lambda: hvd.alltoall(torch.ones(2), splits))
    raises(ValueError, lambda: hvd.alltoall(torch.ones(2), torch.ones(size)))
    raises(ValueError, lambda: hvd.alltoall(torch.ones(2), splits))


def rule_11_reducescatter() -> None:
    rank, size = hvd.rank(), hvd.size()
    rows = torch.arange(2.0 * size + 1)
    got = hvd.reducescatter(rows, op=hvd.Sum)
    begin = 2 * rank + min(rank, 1)
    assert torch.equal(got, rows[begin : begin + 2 + (rank < 1)] * size)
    assert torch.equal(hvd.reducescatter(rows[: 2 * size]), rows[2 * rank : 2 * rank + 2])
    raises(RuntimeError, lambda: hvd.reducescatter(torch.tensor(1.0)))
    raises(RuntimeError, lambda: hvd.reducescatter(rows, op=hvd.Adasum))


def rule_12_the_root_is_a_global_rank() -> None:
    last = hvd.size() - 1
    some = hvd.add_process_set([last])
    if some.included():
        assert hvd.broadcast(torch.full((2,), 7.0), last, process_set=some)[0] == 7
        raises(RuntimeError, lambda: hvd.broadcast(torch.ones(2), 0, process_set=some))
    hvd.remove_process_set(some)
    assert hvd.broadcast(torch.full((2,), float(hvd.rank())), last)[0] == last


def rule_13_join() -> None:
    last = hvd.size() - 1
    if hvd.rank() != 0:
        for _ in range(2):
            got = hvd.allreduce(torch.ones(4), name="joined")
            assert torch.allclose(got, torch.full((4,), last / hvd.size())), got
        assert "join" in raises(RuntimeError, lambda: hvd.allgather(torch.ones(2), name="j"))
        assert "join" in raises(RuntimeError, lambda: hvd.broadcast(torch.ones(2), 1, name="j"))
        hvd.allreduce(torch.ones(1))  # rank 0 has counted one less
    got = hvd.join()
    assert 0 < got <= last, got
    assert hvd.allgather(torch.tensor([got])).tolist() == [got] * hvd.size()
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum)[0] == hvd.size()


def rule_14_barrier_of_a_process_set() -> None:
    some = hvd.add_process_set([0, 1]) if hvd.size() > 2 else hvd.global_process_set
    if hvd.rank() == 0:
        time.sleep(0.5)  # the sleeper of the rule
    began = time.monotonic()
    if some.included():
        hvd.barrier(process_set=some)
        assert hvd.rank() == 0 or time.monotonic() - began > 0.3
    hvd.barrier()


def rule_15_process_sets() -> None:
    if hvd.size() > 2:
        some = hvd.add_process_set([0, 2])
        assert some.size() == 2 and some.ranks == [0, 2] and some.included() == (hvd.rank() in (0, 2))
        raises(ValueError, lambda: hvd.add_process_set([2, 0]))
        if some.included():
            assert hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=some)[0] == 2
            assert some.rank() == hvd.rank() // 2
        else:
            raises((RuntimeError, ValueError), lambda: hvd.allreduce(torch.ones(2), process_set=some))
        assert hvd.remove_process_set(some) and some.process_set_id is None
    raises(ValueError, lambda: hvd.add_process_set(list(range(hvd.size()))))


def rule_16_before_init_and_again() -> None:
    place = hvd.rank(), hvd.size(), hvd.local_rank(), hvd.cross_rank(), hvd.cross_size()
    hvd.barrier()
    hvd.shutdown()
    assert not hvd.is_initialized()
    for call in (hvd.rank, hvd.size, hvd.local_rank, hvd.cross_rank, lambda: hvd.allreduce(torch.ones(1))):
        raises(ValueError, call)
    hvd.init()
    assert place == (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.cross_rank(), hvd.cross_size())
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum)[0] == hvd.size()


def rule_17_gradients() -> None:
    rank, size = hvd.rank(), hvd.size()

    def gradient(call, shape=(size, 2), weight=1.0):
        tensor = torch.ones(shape, requires_grad=True)
        (call(tensor) * weight).sum().backward()
        return tensor.grad

    assert torch.equal(gradient(lambda t: hvd.allreduce(t, op=hvd.Sum)), torch.full((size, 2), float(size)))
    assert torch.equal(gradient(hvd.allreduce), torch.ones(size, 2))
    assert torch.equal(gradient(hvd.allgather, weight=rank + 1.0), torch.full((size, 2), (size + 1) / 2))
    wanted = torch.full((size, 2), (size + 1) / 2 if rank == 1 else 0.0)
    assert torch.equal(gradient(lambda t: hvd.broadcast(t, 1), weight=rank + 1.0), wanted)
    back = torch.arange(1.0, size + 1).view(-1, 1).expand(size, 2)
    assert torch.equal(gradient(hvd.alltoall, weight=rank + 1.0), back)
    assert torch.equal(gradient(lambda t: hvd.reducescatter(t, op=hvd.Sum), weight=rank + 1.0), back * size)


if __name__ == "__main__":
    os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
    hvd.init()
    for rule in sys.argv[1:]:
        globals()[rule]()
        sys.stdout.write(f"{rule} holds\n")
    hvd.barrier()
