"""Files of records: TensorFlow's framing and checksums, ImageNet's names, and what is said of damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangline.bench.make_data import DataPlan, default_shards, draw, make_data
from gangline.bench.records import (
    DamagedRecordError,
    LabelledImage,
    check,
    crc32c,
    decode,
    encode,
    frame,
    index,
    masked_crc,
)
from gangline.errors import UserError

# RFC 3720, appendix B.4.
CHECKSUMS = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
    (b"123456789", 0xE3069283),
    (b"", 0),
    (b"a", 0xC1D04330),
]


@pytest.mark.parametrize(("data", "checksum"), CHECKSUMS)
def test_checksum_is_the_standards(data: bytes, checksum: int) -> None:
    assert crc32c(data) == checksum


def test_checksum_of_many_lanes_is_that_of_one_byte_after_the_other() -> None:
    data = bytes(range(256)) * 11 + b"tail"
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)

    assert crc32c(data) == crc ^ 0xFFFFFFFF


def test_mask_is_tensorflows() -> None:
    # crc >> 15 | crc << 17, plus 0xa282ead8 (record_writer, crc32c.h).
    assert masked_crc(b"") == 0xA282EAD8


def test_payload_is_a_tensorflow_example() -> None:
    # Written out by hand: Example{1: Features{1: {key, Feature{BytesList}}, 1: {key, Feature{Int64List}}}}.
    image = b"\x0a\x0dimage/encoded\x12\x06\x0a\x04\x0a\x02\xff\xd8"
    label = b"\x0a\x11image/class/label\x12\x06\x1a\x04\x0a\x02\xac\x02"
    features = b"\x0a" + bytes([len(image)]) + image + b"\x0a" + bytes([len(label)]) + label

    assert decode(b"\x0a" + bytes([len(features)]) + features) == LabelledImage(b"\xff\xd8", 300)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    samples = [LabelledImage(bytes([number]) * (number * 700 + 1), number * 100) for number in range(5)]
    path = tmp_path / "train-00000-of-00001"
    path.write_bytes(b"".join(frame(encode(sample)) for sample in samples))

    content = path.read_bytes()

    assert [decode(content[at : at + size]) for at, size in index(path)] == samples
    assert check(path) == 5


def test_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "train-00000-of-00001"
    content = frame(encode(LabelledImage(b"jpeg", 1)))
    path.write_bytes(content[:-1])
    with pytest.raises(DamagedRecordError, match="no record at byte 0 of"):
        index(path)

    path.write_bytes(content[:20] + b"\x00" + content[21:])
    with pytest.raises(DamagedRecordError, match="checksum of record 0"):
        check(path)

    with pytest.raises(DamagedRecordError):
        decode(b"no protobuf at all")


def test_data_set_is_striped_over_its_folders_and_the_same_again(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b", "again")]
    striped = DataPlan(7, (str(folders[0]), str(folders[1])), shards=3, classes=4, seed=5)
    calls: list[tuple[int, int]] = []

    size = make_data(striped, workers=1, done=lambda *call: calls.append(call))
    make_data(DataPlan(7, (str(folders[2]),), 3, 4, 5), workers=1, done=lambda *_: None)

    names = [f"train-0000{shard}-of-00003" for shard in range(3)]
    assert sorted(path.name for path in folders[0].iterdir()) == [names[0], names[2]]
    assert sorted(path.name for path in folders[1].iterdir()) == [names[1]]
    assert [check(folders[2] / name) for name in names] == [2, 2, 3]
    assert all(
        (folders[shard % 2] / name).read_bytes() == (folders[2] / name).read_bytes()
        for shard, name in enumerate(names)
    )
    assert calls[-1] == (3, size)


def test_image_has_imagenets_size_and_a_label_of_its_class() -> None:
    import io

    from PIL import Image

    samples = [draw(number, DataPlan(8, ("x",), 1, classes=3)) for number in range(8)]

    sizes = [Image.open(io.BytesIO(sample.jpeg)).size for sample in samples]
    assert {sample.label for sample in samples} <= {1, 2, 3}
    assert all(160 <= side <= 800 for size in sizes for side in size)
    assert 60_000 < sum(len(sample.jpeg) for sample in samples) / 8 < 160_000


def test_folder_with_another_data_set_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "train-00000-of-00099").touch()

    with pytest.raises(UserError, match="holds shards of another data set"):
        make_data(DataPlan(1, (str(tmp_path),), 1), workers=1, done=lambda *_: None)


def test_shards_hold_about_a_thousand_images() -> None:
    assert default_shards(20_000, ["a", "b"]) == 20
    assert default_shards(3, ["a", "b"]) == 2
    assert default_shards(1, ["a", "b"]) == 1
