"""Dumps of torch's flight recorder: of gloo as torch 2.13 wrote them, of nccl as its format is documented."""

from __future__ import annotations

from gangline.train.silence.flight_recorder import Flight, flight_of

# A rank that waits under backward(): what `_dump_fr_trace_json(onlyActive=True)` gave, stacks left out.
GLOO_WAITS = {
    "comm_lib_version": "",
    "entries": [
        {
            "collective_seq_id": 5,
            "is_p2p": False,
            "op_id": 5,
            "pg_id": 0,
            "process_group": ["0", "default_pg"],
            "profiling_name": "gloo:all_reduce",
            "record_id": 4,
            "retired": False,
            "state": "scheduled",
            "thread_name": "python",
            "time_created_ns": 1795611379562587677,
            "time_discovered_completed_ns": 0,
            "time_discovered_started_ns": 0,
            "timeout_ms": 1800000,
        }
    ],
    "nccl_comm_state": {},
    "pg_config": {"": {"desc": "", "name": "", "ranks": "[0, 1]"}},
    "pg_status": {
        "0": {
            "last_completed_collective": "4",
            "last_enqueued_collective": "5",
            "last_started_collective": "-1",
        }
    },
    "version": "2.10",
}


def test_rank_that_waits_in_a_collective_says_since_when() -> None:
    assert flight_of(GLOO_WAITS) == Flight(4, 1795611379562587677, "gloo:all_reduce")


def test_rank_that_computes_has_none_under_way() -> None:
    assert flight_of(GLOO_WAITS | {"entries": []}) == Flight(4)


def test_torch_without_a_record_of_the_backend_knows_nothing() -> None:
    empty = {"comm_lib_version": "", "nccl_comm_state": {}, "pg_config": {}, "pg_status": {}}
    assert flight_of(empty) == Flight()


def nccl(state: str, created_ns: int, *, is_p2p: bool = False) -> dict[str, object]:
    return GLOO_WAITS["entries"][0] | {
        "state": state,
        "time_created_ns": created_ns,
        "is_p2p": is_p2p,
        "profiling_name": "nccl:recv 0<-1" if is_p2p else "nccl:all_reduce",
    }


def test_the_first_of_several_under_way_counts_and_completed_and_received_ones_do_not() -> None:
    entries = [
        nccl("completed", 100),
        nccl("started", 300),
        nccl("scheduled", 400),
        nccl("scheduled", 200, is_p2p=True),
    ]
    status = {
        "0": {"last_completed_collective": "70"},
        "1": {"last_completed_collective": "-1"},  # a group that has done nothing yet
    }
    found = flight_of(GLOO_WAITS | {"entries": entries, "pg_status": status})

    assert found == Flight(70, 300, "nccl:all_reduce")
