"""torch's process group for CPU tensors over shared memory and gloo, as `register` makes it known to torch.

Ours are all-reduce, reduce, reduce-scatter, all-gather, broadcast, all-to-all on one node, and the barrier.
gloo does the rest by itself: sparse tensors, gather, scatter, send and receive, all-to-all over several
nodes (where each pair of ranks exchanges directly), and everything where no two ranks share a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp, Work

from gangline.train.collectives.operands import (
    are_alike,
    check_sizes,
    dense,
    equal_parts,
    on_cpu,
    options_of,
    split_rows,
    tensors_of,
)
from gangline.train.collectives.parts import Scattered
from gangline.train.collectives.rank_group import Begun, RankGroup
from gangline.train.collectives.reductions import (
    adder_for,
    as_array,
    check_between_nodes,
    checked_op,
    divide_of,
    in_place,
    without_average,
)
from gangline.train.collectives.staged import Reduction, StagedCollectives
from gangline.train.collectives.work import Finish


class CollectiveGroup(RankGroup):
    """A group of ranks; its methods are those that torch.distributed calls."""

    # Reductions ---------------------------------------------------------------------------------------------

    def allreduce(self, tensors: Any, opts: Any = None) -> Work:
        """Put tensors of all ranks together, in place."""
        opts = options_of(opts, dist.AllreduceOptions, "reduceOp")
        tensors, op = on_cpu(tensors), checked_op(opts.reduceOp)
        is_sparse = any(tensor.is_sparse for tensor in tensors)
        how = None if is_sparse else self._reduction(tensors[0].dtype, op)

        def staged(shared: StagedCollectives, what: str) -> None:
            assert how is not None
            for tensor in tensors:
                with in_place(tensor) as flat:
                    shared.all_reduce(what, flat, flat, how)

        def flat(gloo: Any) -> Begun:
            opts.reduceOp = without_average(op)
            whole, copy_back = dense(tensors)
            works = [gloo.allreduce([one], opts) for one in whole]
            return works, both(self._divided(whole, op), copy_back)

        work = self.begin("all_reduce", tensors, opts, None if is_sparse else staged, flat)
        if torch._C._current_graph_task_id() != -1:
            # In backward() an error in a future reaches the script as one of a cast; raised from a callback
            # it stays what it is.
            torch.autograd.Variable._execution_engine.queue_callback(work.wait)
        return work

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Work:
        """Put several tensors of all ranks together, in place; as one where they are alike."""
        shared = self._met.staged
        if shared is None or len(tensors) < 2 or not are_alike(tensors):
            return self.allreduce(tensors, opts)
        whole, copy_back = dense(tensors)
        return self.all_reduce_alike(whole, options_of(opts, dist.AllreduceOptions, "reduceOp"), copy_back)

    def all_reduce_alike(self, tensors: Sequence[Any], opts: Any, finish: Finish | None = None) -> Work:
        """Put many tensors of all ranks together as one, in place, without a copy of them side by side.

        Only where `no_shared_memory` is ``""``; that the tensors are alike (see `are_alike`) and have no
        gaps is not checked.

        Cost: as of one tensor with their bytes, and 1 µs for each of them.
        """
        op = checked_op(opts.reduceOp)
        how = self._reduction(tensors[0].dtype, op)

        def staged(shared: StagedCollectives, what: str) -> None:
            dtype = as_array(tensors[0].new_empty(0)).dtype
            shared.all_reduce_parts(what, Scattered(tensors, dtype, shared.memory), how)
            if finish is not None:
                finish()

        return self.begin("all_reduce", tensors, opts, staged, nothing)

    def reduce(self, tensors: Any, opts: Any) -> Work:
        """Put tensors of all ranks together, at one of them."""
        tensors, op = on_cpu(tensors), checked_op(opts.reduceOp)
        is_root = opts.rootRank == self._place
        how = self._reduction(tensors[0].dtype, op)

        def staged(shared: StagedCollectives, what: str) -> None:
            for tensor in tensors:
                with in_place(tensor) as flat:
                    shared.all_reduce(what, flat, flat if is_root else None, how)

        def flat(gloo: Any) -> Begun:
            opts.reduceOp = without_average(op)
            whole, copy_back = dense(tensors)
            works = [gloo.reduce([one], opts) for one in whole]
            return works, both(self._divided(whole, op), copy_back) if is_root else None

        return self.begin("reduce", tensors, opts, staged, flat)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        """Put the tensors for each rank together at that rank; a list of tensors for each output."""
        return self._reduce_scatter(outputs, inputs, opts)

    def reduce_scatter_single(self, output: Any, input: Any, opts: Any = None) -> Work:
        """Put a tensor together and leave every rank its part."""
        return self._reduce_scatter([output], [equal_parts(input, self._count)], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        """Put several tensors together and leave every rank its parts."""
        return self._reduce_scatter(outputs, [equal_parts(one, self._count) for one in inputs], opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduce_scatter(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        opts = options_of(opts, dist.ReduceScatterOptions, "reduceOp")
        outputs, op = on_cpu(outputs), checked_op(opts.reduceOp)
        for output, rows in zip(outputs, inputs, strict=True):
            check_sizes("reduce_scatter", output, on_cpu(rows), self._count)
        how = self._reduction(outputs[0].dtype, op)

        def staged(shared: StagedCollectives, what: str) -> None:
            for output, rows in zip(outputs, inputs, strict=True):
                with in_place(output) as flat:
                    shared.reduce_scatter(what, [as_array(one.contiguous()) for one in rows], flat, how)

        def flat(gloo: Any) -> Begun:
            # An all-reduce: gloo's own reduce-scatter is slower, and has no future.
            wholes = [torch.cat([row.reshape(-1) for row in rows]) for rows in inputs]
            all_reduce = dist.AllreduceOptions()
            all_reduce.reduceOp = without_average(op)

            def take() -> None:
                for output, whole in zip(outputs, wholes, strict=True):
                    output.copy_(whole.view(self._count, -1)[self._place].view(output.shape))

            works = [gloo.allreduce([one], all_reduce) for one in wholes]
            return works, both(take, self._divided(outputs, op))

        return self.begin("reduce_scatter", outputs, opts, staged, flat)

    def _reduction(self, dtype: Any, op: Any) -> Reduction:
        divisor = self._count if op == ReduceOp.AVG else 1
        shared = self._met.staged
        if shared is not None and shared.is_one_node:
            return Reduction(dtype, op, adder_for(dtype, op, divisor), None)
        check_between_nodes(dtype)
        return Reduction(
            dtype, op, adder_for(dtype, op, 1), divide_of(dtype, divisor) if divisor > 1 else None
        )

    def _divided(self, tensors: Sequence[Any], op: Any) -> Finish | None:
        def divide() -> None:
            for tensor in tensors:
                tensor.div_(self._count, rounding_mode=None if tensor.is_floating_point() else "trunc")

        return divide if op == ReduceOp.AVG else None

    # What is moved ------------------------------------------------------------------------------------------

    def broadcast(self, tensors: Any, opts: Any) -> Work:
        """Replace tensors on all ranks by those of one."""
        tensors = on_cpu(tensors)
        if any(tensor.is_sparse for tensor in tensors):
            raise ValueError("broadcast of a sparse tensor: give its indices() and values()")

        def staged(shared: StagedCollectives, what: str) -> None:
            for tensor in tensors:
                with in_place(tensor) as flat:
                    shared.broadcast(what, flat, opts.rootRank)

        def flat(gloo: Any) -> Begun:
            options = dist.BroadcastOptions()
            options.rootRank = opts.rootRank
            whole, copy_back = dense(tensors)
            return [gloo.broadcast([one], options) for one in whole], copy_back

        return self.begin("broadcast", tensors, opts, staged, flat)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        """Give every rank the tensors of all; a list of tensors for each input."""
        return self._all_gather(outputs, inputs, opts)

    def all_gather_single(self, output: Any, input: Any, opts: Any = None) -> Work:
        """Give every rank the tensors of all as one tensor."""
        return self.all_gather_single_coalesced([output], [input], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        """Give every rank several tensors of all, each as one tensor."""
        if not all(one.is_contiguous() for one in outputs):
            raise ValueError(
                "all_gather_single wants outputs without gaps in memory: give output.contiguous()"
            )
        return self._all_gather([equal_parts(one, self._count) for one in outputs], inputs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        """Give every rank several tensors of all; a list of tensors for each rank."""
        return self._all_gather([list(one) for one in zip(*outputs, strict=True)], inputs, opts)

    def _all_gather(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        inputs = on_cpu(inputs)
        for rows, own in zip(outputs, inputs, strict=True):
            check_sizes("all_gather", own, on_cpu(rows), self._count)

        def staged(shared: StagedCollectives, what: str) -> None:
            for rows, own in zip(outputs, inputs, strict=True):
                whole, copy_back = dense(rows)
                shared.all_gather(what, as_array(own.contiguous()), [as_array(one) for one in whole])
                if copy_back is not None:
                    copy_back()

        def flat(gloo: Any) -> Begun:
            works, finish = [], None
            for rows, own in zip(outputs, inputs, strict=True):
                whole, copy_back = dense(rows)
                finish = both(finish, copy_back)
                works.append(gloo.allgather([[one.view(-1) for one in whole]], [own.reshape(-1)]))
            return works, finish

        return self.begin("all_gather", outputs, opts, staged, flat)

    def all_to_all_single(
        self,
        output: Any,
        input: Any,
        output_splits: Any,
        input_splits: Any,
        opts: Any = None,
    ) -> Work:
        """Give every rank the rows that each has for it."""
        on_cpu([output, input])
        ins = split_rows(input, input_splits, self._count)
        outs = split_rows(output, output_splits, self._count)
        return self.alltoall(outs, ins, opts)

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        """Give every rank the tensor that each has for it."""
        on_cpu([*outputs, *inputs])
        shared = self._met.staged

        def staged(shared: StagedCollectives, what: str) -> None:
            whole, copy_back = dense(outputs)
            sent = [as_array(one.contiguous()).view("u1") for one in inputs]
            shared.all_to_all(what, sent, [as_array(one).view("u1") for one in whole])
            if copy_back is not None:
                copy_back()

        def flat(gloo: Any) -> Begun:
            """Begin it as one of flat tensors, all that gloo knows."""
            sent = torch.cat([one.reshape(-1) for one in inputs])
            got = torch.empty(sum(one.numel() for one in outputs), dtype=sent.dtype)
            splits = [[one.numel() for one in many] for many in (outputs, inputs)]

            def spread() -> None:
                for one, piece in zip(outputs, got.split(splits[0]), strict=True):
                    one.copy_(piece.view(one.shape))

            return [gloo.alltoall_base(got, sent, *splits, dist.AllToAllOptions())], spread

        # Between nodes each pair of ranks exchanges directly.
        can_be = shared is not None and shared.is_one_node
        return self.begin("all_to_all", outputs, opts, staged if can_be else None, flat)

    def barrier(self, opts: Any = None) -> Work:
        """Return when all ranks are here."""
        return self.begin(
            *("barrier", [], opts),
            lambda shared, what: shared.barrier(what),
            lambda gloo: ([gloo.barrier(opts or dist.BarrierOptions())], None),
        )

    # Of gloo ------------------------------------------------------------------------------------------------

    def gather(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        """Give one rank the tensors of all."""

        def flat(gloo: Any) -> Begun:
            whole, copy_back = dense(tensors_of(outputs))
            return [gloo.gather([whole] if whole else [], dense(inputs)[0], opts)], copy_back

        return self.begin("gather", inputs, opts, None, flat)

    def scatter(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        """Give every rank its tensor of one rank."""

        def flat(gloo: Any) -> Begun:
            whole, copy_back = dense(outputs)
            return [gloo.scatter(whole, [dense(one)[0] for one in inputs], opts)], copy_back

        return self.begin("scatter", outputs, opts, None, flat)

    def send(self, tensors: Any, target: int, tag: int) -> Work:
        """Send a tensor to a rank."""
        name = f"send to rank {self._names[target]},"
        return self.begin(
            name, tensors, None, None, lambda gloo: ([gloo.send(dense(tensors)[0], target, tag)], None)
        )

    def recv(self, tensors: Any, source: int, tag: int) -> Work:
        """Receive a tensor of a rank."""

        def flat(gloo: Any) -> Begun:
            whole, copy_back = dense(tensors)
            return [gloo.recv(whole, source, tag)], copy_back

        return self.begin(f"receive from rank {self._names[source]},", tensors, None, None, flat)

    def recv_anysource(self, tensors: Any, tag: int) -> Work:
        """Receive a tensor of any rank."""

        def flat(gloo: Any) -> Begun:
            whole, copy_back = dense(tensors)
            return [gloo.recv_anysource(whole, tag)], copy_back

        return self.begin("receive", tensors, None, None, flat)


def nothing(_: Any) -> Begun:
    """Begin nothing on gloo."""
    raise AssertionError("only where memory is shared")


def both(first: Finish | None, then: Finish | None) -> Finish | None:
    """Return one call for two."""
    if first is None or then is None:
        return first or then

    def finish() -> None:
        first()
        then()

    return finish
