"""The files of a log, as lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.storage.dump import dump_file
from tests.unit.storage.support import NOW_MS, Bench, batch, end_transaction, produce


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    bench = Bench(str(tmp_path), index_interval_bytes=50)
    log = bench.open()
    log.append_as_leader(batch(["hello", "world"], key=b"k"), leader_epoch=3)
    produce(
        log,
        epoch=3,
        timestamp=NOW_MS + 9,
        producer_id=5,
        producer_epoch=1,
        base_sequence=0,
        is_transactional=True,
    )
    end_transaction(log, 5, commit=False, producer_epoch=1, coordinator_epoch=2, epoch=3)
    log.close()
    return Path(bench.directory)


def lines(path: Path, *, print_data: bool = False, deep: bool = False) -> list[str]:
    first, *rest = dump_file(path, print_data=print_data, deep=deep)
    assert first == f"Dumping {path}"
    return rest


def test_a_log_is_dumped_as_kafka_does(directory: Path) -> None:
    start, *batches = lines(directory / f"{0:020d}.log")
    assert start == "Log starting offset: 0"
    assert len(batches) == 3
    assert batches[0].startswith(
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 "
        "producerEpoch: -1 partitionLeaderEpoch: 3 isTransactional: false isControl: false "
        f"deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: {NOW_MS + 1} size: "
    )
    assert batches[0].endswith(" isvalid: true")
    assert "magic: 2 compresscodec: none crc: " in batches[0]


def test_records_and_markers_are_dumped_on_demand(directory: Path) -> None:
    found = lines(directory / f"{0:020d}.log", print_data=True, deep=True)
    assert found[2] == (
        f"| offset: 0 CreateTime: {NOW_MS} keySize: 1 valueSize: 5 sequence: -1 headerKeys: [] "
        "key: k payload: hello"
    )
    assert found[-1].endswith("endTxnMarker: ABORT coordinatorEpoch: 2")


def test_indexes_are_dumped_and_compared_with_their_log(directory: Path) -> None:
    index = lines(directory / f"{0:020d}.index")
    assert index[0].startswith("offset: 2 position: ")
    assert not any("ismatch" in line for line in index)
    assert lines(directory / f"{0:020d}.timeindex") == [f"timestamp: {NOW_MS + 9} offset: 2"]
    (directory / f"{0:020d}.index").write_bytes(bytes([0, 0, 0, 1, 0, 0, 0, 0]))
    assert lines(directory / f"{0:020d}.index")[0] == "offset: 1 position: 0"
    (directory / f"{0:020d}.index").write_bytes(bytes([0, 0, 0, 9, 0, 0, 0, 0]))
    assert lines(directory / f"{0:020d}.index")[-1] == "  Index offset: 9, log offset: 1"


def test_the_rest_is_dumped_too(directory: Path) -> None:
    assert lines(directory / f"{0:020d}.txnindex") == [
        "version: 0 producerId: 5 firstOffset: 2 lastOffset: 3 lastStableOffset: 4"
    ]
    (snapshot,) = lines(directory / f"{4:020d}.snapshot")
    assert snapshot == (
        "producerId: 5 producerEpoch: 1 coordinatorEpoch: 2 currentTxnFirstOffset: OptionalLong.empty "
        f"lastTimestamp: {NOW_MS} firstSequence: 0 lastSequence: 0 lastOffset: 2 offsetDelta: 0 "
        f"timestamp: {NOW_MS + 9}"
    )
    assert lines(directory / "leader-epoch-checkpoint") == ["epoch: 3 startOffset: 0"]


def test_damage_is_reported(directory: Path) -> None:
    path = directory / f"{0:020d}.log"
    with path.open("ab") as file:
        file.write(b"\xee" * 40)
    assert lines(path)[-1] == f"Found 40 invalid bytes at the end of {path.name}"
    (directory / f"{4:020d}.snapshot").write_bytes(b"junk")
    with pytest.raises(ValueError, match="early"):
        lines(directory / f"{4:020d}.snapshot")
    (directory / "notes").write_text("x")
    with pytest.raises(ValueError, match="not a file of a log"):
        lines(directory / "notes")
