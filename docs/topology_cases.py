"""Published measurements that the topology model is held against, with their sources; none was fitted to."""

from dataclasses import dataclass, replace
from itertools import combinations

from gangline.topology import (
    AllReduce,
    Machine,
    Part,
    Training,
    all_reduce,
    best_rings,
    bus_gb_s,
    choices,
    known_machine,
    machine_from_matrix,
    mask_of,
)
from gangline.topology.rates import HOSTS, QUOTED_OVERLAP
from gangline.topology.step_time import (
    BYTES_FP16,
    BYTES_FP32,
    PARAMETERS,
    compute_s_from_step,
    efficiency,
    step_s,
)

LARGE_BYTES = 1 << 32
DGX1_V100 = known_machine("v100-dgx1")
DGX1_P100 = known_machine("p100-dgx1")
EVERYTHING = 0b11111111
QUADS = [mask_of(quad) for quad in combinations(range(8), 4)]


@dataclass(frozen=True)
class Rate:
    """A bus bandwidth: what was measured, where, what the model says. GB/s."""

    what: str
    measured: float
    predicted: float
    source: str


@dataclass(frozen=True)
class Scaling:
    """A scaling efficiency: what was measured, what the model says without and with overlap. Shares of 1."""

    what: str
    measured: float
    without: float
    predicted: float
    source: str


def meshless(product: str, count: int, sockets: int, host: str, bridges: int = 0) -> Machine:
    """Return a box of cards in slots of their own, bridged in pairs by NVLinks if asked for."""
    per_socket = count // sockets

    def link(a: int, b: int) -> str:
        if a == b:
            return "X"
        if bridges and a // 2 == b // 2:
            return f"NV{bridges}"
        return "NODE" if a // per_socket == b // per_socket else "SYS"

    links = tuple(tuple(link(a, b) for b in range(count)) for a in range(count))
    return machine_from_matrix(product, links, host=HOSTS[host])


def rates() -> list[Rate]:
    """Return bandwidths of collectives and of copies between two GPUs."""
    a100 = known_machine("p4d.24xlarge")
    bridged = meshless("NVIDIA A100 80GB PCIe", 8, 2, "Intel Skylake", bridges=12)
    blackwell = meshless("NVIDIA B200", 8, 2, "Intel Sapphire Rapids")  # PCIe 5, as a card of that generation
    p4d = "[nccl 527](https://github.com/NVIDIA/nccl/issues/527)"
    pairs = "[nccl-tests 178](https://github.com/NVIDIA/nccl-tests/issues/178)"
    cards = "[nccl 1639](https://github.com/NVIDIA/nccl/issues/1639)"
    wiki = "MXNet's notes on p3.16xlarge"
    rows = [Rate("p4d.24xlarge, all-reduce, 8 A100", 230.8, bus_gb_s(a100, EVERYTHING), p4d)]
    rows += [
        Rate(f"{nodes} p4d.24xlarge, all-reduce, {8 * nodes} A100 over EFA", measured, over(a100, nodes), p4d)
        for nodes, measured in ((2, 57.2), (3, 31.8), (4, 29.6))
    ]
    rows += _of_today()
    rows += [
        Rate("2 A100 with an NVLink bridge", 208, bus_gb_s(bridged, 0b11), pairs),
        Rate("3 A100, two of them bridged", 20, bus_gb_s(bridged, 0b111), pairs),
        Rate("4 RTX 5090 on one CPU, PCIe 5 (slots assumed)", 35, bus_gb_s(blackwell, 0b1111), cards),
        Rate("8 RTX 5090 on two CPUs, PCIe 5 (slots assumed)", 28, bus_gb_s(blackwell, EVERYTHING), cards),
        Rate(
            "2 H100, copy one way",
            380,
            pair("h100", 0, 1),
            "[nccl 1264](https://github.com/NVIDIA/nccl/issues/1264)",
        ),
        Rate(
            "2 V100, double NVLink, copy one way", 48, pair("p3.16xlarge", 0, 3), "arena's sample, half of 96"
        ),
        Rate(
            "2 V100, single NVLink, copy one way", 24, pair("p3.16xlarge", 0, 1), "arena's sample, half of 48"
        ),
        Rate("2 V100, PCIe and CPU link, copy one way", 10, pair("p3.16xlarge", 0, 5), wiki),
    ]
    return rows


def _of_today() -> list[Rate]:
    """Return all-reduces over NVSwitch, several cards a node and NVLink domains."""

    def threads(*numbers: int, project: str = "NVIDIA/nccl-tests") -> str:
        name = project.removeprefix("NVIDIA/")
        return ", ".join(f"[{name} {n}](https://github.com/{project}/issues/{n})" for n in numbers)

    h100, a100 = known_machine("h100"), known_machine("a100")
    four = a100.subset(range(4))
    two_cards = replace(four, network_gbit_s=400, cards=2)
    four_cards = replace(four, network_gbit_s=800, cards=4)
    ring = all_reduce([Part(h100, EVERYTHING)], LARGE_BYTES, algorithms=["ring"]).bus_gb_s
    card = Part(replace(h100, network_gbit_s=1600, cards=4), 1)
    tray = Part(known_machine("gb200"), 0b1111, "rack")
    eight = replace(a100, network_gbit_s=800, cards=4)
    return [
        Rate("8 H100, rings alone", 369, ring, threads(309)),
        Rate("8 H100", 480, over(h100, 1), threads(212, 309)),
        Rate("8 H200", 475, over(known_machine("h200"), 1), threads(272)),
        Rate("8 B200", 830, over(known_machine("b200"), 1), threads(1807, project="NVIDIA/nccl")),
        Rate("2 x 8 H100, 8 x 400 Gbit/s", 470, over(h100, 2), threads(309)),
        Rate("4 x 8 H100, 8 x 400 Gbit/s", 366, over(h100, 4), threads(309)),
        Rate("2 x 8 A100, 4 x 200 Gbit/s", 91, over(eight, 2), threads(100)),
        Rate("2 x 4 A100, 4 x 200 Gbit/s", 78, over(four_cards, 2), threads(277)),
        Rate("2 x 4 A100, 2 x 200 Gbit/s", 45, over(two_cards, 2), threads(277)),
        Rate("2 x 1 H100, nodes with 4 x 400 Gbit/s", 50, bus([card, card]), threads(232)),
        Rate("72 GB200 of one NVL72", 847, bus([tray] * 18), threads(43, project="coreweave/nccl-tests")),
    ]


def bus(parts: list[Part]) -> float:
    """Return the bus bandwidth of a large all-reduce over parts of nodes."""
    return all_reduce(parts, LARGE_BYTES).bus_gb_s


def pair(name: str, first: int, second: int) -> float:
    """Return the rate between two GPUs."""
    return best_rings(known_machine(name), mask_of([first, second])).gb_s


def over(machine: Machine, nodes: int) -> float:
    """Return the bus bandwidth of a large all-reduce over whole nodes."""
    return reduce_whole(machine, nodes, LARGE_BYTES).bus_gb_s


def reduce_whole(machine: Machine, nodes: int, size_bytes: float) -> AllReduce:
    """Return the all-reduce over whole nodes."""
    return all_reduce([Part(machine, machine.everything)] * nodes, size_bytes)


def scalings() -> list[Scaling]:
    """Return efficiencies of training on many GPUs against one, or against eight."""
    return [*_tensorflow_dgx1(), _netapp(), *_dlperf(), *_horovod()]


def _scaling(
    what: str,
    measured: float,
    source: str,
    training: Training,
    reduced: AllReduce,
    base: AllReduce | None = None,
) -> Scaling:
    shares = []
    for overlap in (0.0, QUOTED_OVERLAP):
        case = Training(training.gradient_bytes, training.compute_s, overlap=overlap)
        start = efficiency(case, base.seconds) if base else 1.0
        shares.append(efficiency(case, reduced.seconds) / start)
    return Scaling(what, measured, shares[0], shares[1], source)


def _tensorflow_dgx1() -> list[Scaling]:
    """TensorFlow's benchmarks of May 2017, synthetic data, NCCL; images/s by number of GPUs."""
    table = {
        "vgg16": (64, {1: 154, 2: 295, 4: 584, 8: 1081}),
        "alexnet": (512, {1: 2987, 2: 5658, 4: 10509, 8: 17822}),
    }
    rows = []
    for model, (batch, speeds) in table.items():
        training = Training(BYTES_FP32 * PARAMETERS[model], batch / speeds[1])
        for count in (2, 4, 8):
            mask = choices(DGX1_P100).lowest(EVERYTHING, count)
            reduced = all_reduce([Part(DGX1_P100, mask)], training.gradient_bytes)
            measured = speeds[count] / speeds[1] / count
            what = f"{model}, DGX-1 P100, {count} GPUs"
            rows.append(_scaling(what, measured, "TensorFlow benchmarks 2017", training, reduced))
    return rows


def _netapp() -> Scaling:
    """ResNet-50 fp16, batch 256, on one and two DGX-1: 6530.59 and 12881.34 images/s."""
    size = BYTES_FP16 * PARAMETERS["resnet50"]
    base = reduce_whole(DGX1_V100, 1, size)
    training = Training(size, compute_s_from_step(256 / (6530.59 / 8), base.seconds))
    reduced = reduce_whole(DGX1_V100, 2, size)
    measured = 12881.34 / 6530.59 / 2
    return _scaling(
        "resnet50 fp16, two DGX-1 V100 against one", measured, "NetApp TR-4798", training, reduced, base
    )


def _dlperf() -> list[Scaling]:
    """ResNet-50 on V100 with 100 Gbit/s InfiniBand, PyTorch DDP; images/s by number of GPUs."""
    machine = known_machine("p3dn.24xlarge")
    rows = []
    for what, batch, speeds in (
        ("fp32", 128, {1: 367, 8: 2888, 16: 5717, 32: 10917}),
        ("mixed precision", 256, {1: 803, 8: 6155, 16: 11992, 32: 22551}),
    ):
        training = Training(BYTES_FP32 * PARAMETERS["resnet50"], batch / speeds[1])
        for count in (8, 16, 32):
            reduced = reduce_whole(machine, count // 8, training.gradient_bytes)
            measured = speeds[count] / speeds[1] / count
            name = f"resnet50 {what}, V100, 100 Gbit/s, {count} GPUs"
            rows.append(_scaling(name, measured, "OneFlow DLPerf", training, reduced))
    return rows


def _horovod() -> list[Scaling]:
    """512 Pascal GPUs in 128 servers of four, 25 Gbit/s RoCE; one GPU's speed from TensorFlow's benchmarks.

    ResNet-101 was not measured on one P100 there; its time lies between those of ResNet-50 and ResNet-152 as
    its multiply-adds do (4.1, 7.8, 11.5 G).
    """
    server = known_machine("p100-dgx1").subset(range(4))
    server = machine_from_matrix("Tesla P100-SXM2-16GB", server.links, network_gbit_s=25)
    image_s = {"inception3": 1 / 142, "resnet101": (1 / 219 + 1 / 91.8) / 2, "vgg16": 1 / 154}
    rows = []
    for model, measured in (("inception3", 0.90), ("resnet101", 0.90), ("vgg16", 0.68)):
        training = Training(BYTES_FP32 * PARAMETERS[model], 64 * image_s[model])
        reduced = reduce_whole(server, 128, training.gradient_bytes)
        rows.append(_scaling(f"{model}, 512 P100, 25 Gbit/s", measured, "Horovod paper", training, reduced))
    return rows


@dataclass(frozen=True)
class StepTime:
    """The time of a step on some GPUs of each node, in seconds: measured, without overlap, with it."""

    what: str
    placement: str
    measured: float
    without: float
    predicted: float


def step_times() -> list[StepTime]:
    """Return step times by placement on nodes of four T4, from the artifact of Pollux (OSDI 2021).

    A digit for each node says how many of its GPUs are used. The time of one GPU alone is the computation.
    The nodes are taken as g4dn.12xlarge.
    """
    node = known_machine("g4dn.12xlarge")
    rows = []
    for what, model, times in (
        (
            "ResNet-50, batch 20",
            "resnet50",
            {"1": 0.147, "2": 0.153, "4": 0.161, "11": 0.257, "22": 0.383, "1111": 0.334, "44": 0.561},
        ),
        (
            "BERT, batch 12",
            "bert-base",
            {"1": 0.92, "2": 0.92, "4": 0.957, "11": 1.48, "22": 2.12, "44": 2.54},
        ),
    ):
        size = BYTES_FP32 * PARAMETERS[model]
        for placement, measured in times.items():
            if placement == "1":
                continue
            parts = [Part(node, choices(node).best(node.everything, int(digit))) for digit in placement]
            reduced = all_reduce(parts, size).seconds
            predicted = [
                step_s(Training(size, times["1"], overlap=overlap), reduced)
                for overlap in (0.0, QUOTED_OVERLAP)
            ]
            rows.append(StepTime(what, placement, measured, *predicted))
    return rows


def right_order() -> tuple[int, int]:
    """Return how many pairs of placements are in the right order without overlap, and of how many.

    Pairs are of one model and differ by more than 5 % in their measured times.
    """
    right = pairs = 0
    for one, other in combinations(step_times(), 2):
        most = max(one.measured, other.measured)
        if one.what != other.what or abs(one.measured - other.measured) <= 0.05 * most:
            continue
        pairs += 1
        right += (one.measured < other.measured) == (one.without < other.without - 1e-6)
    return right, pairs


FOUR_GPUS = 4 * 64
"""Images of one step of four GPUs with batch 64."""

ACK = {"vgg16": (820.5, 435.2), "resnet50": (1321.9, 1251.8)}
"""images/s with topology-aware and with ordinary scheduling, four V100, as Alibaba published them."""

ARENA = {"vgg16": (991.92, 200.47), "resnet50": (1471.55, 745.38)}
"""The same from arena's documentation, where the ordinary run used two nodes."""


@dataclass(frozen=True)
class Placements:
    """Predicted speed-up of the best quad over others, for one model and one share of overlap.

    Attributes:
        quads: over each of the 70 quads of one node.
        split: over two GPUs on each of two nodes, by network rate in Gbit/s.
    """

    model: str
    overlap: float
    quads: tuple[float, ...]
    split: dict[int, float]


def placements(table: dict[str, tuple[float, float]], model: str, overlap: float) -> Placements:
    """Return the ratios that the model predicts; the time of computation comes from the fast run alone."""
    size = BYTES_FP32 * PARAMETERS[model]
    best = choices(DGX1_V100).best(EVERYTHING, 4)
    fast = all_reduce([Part(DGX1_V100, best)], size).seconds
    compute_s = compute_s_from_step(FOUR_GPUS / table[model][0], fast, overlap=overlap)
    training = Training(size, compute_s, overlap=overlap)
    base = step_s(training, fast)
    quads = (all_reduce([Part(DGX1_V100, quad)], size).seconds for quad in QUADS)
    pair_of = choices(DGX1_V100).best(EVERYTHING, 2)
    rows = {}
    for gbit_s in (10, 25, 100):
        node = machine_from_matrix("Tesla V100", DGX1_V100.links, network_gbit_s=gbit_s)
        rows[gbit_s] = step_s(training, all_reduce([Part(node, pair_of)] * 2, size).seconds) / base
    return Placements(model, overlap, tuple(step_s(training, seconds) / base for seconds in quads), rows)
