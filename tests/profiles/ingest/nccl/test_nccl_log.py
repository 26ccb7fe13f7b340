"""Logs of NCCL: what each version prints becomes the same tables; hostile lines cost nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profiles import ingest
from profiles.ingest.nccl.lines import parse_line
from profiles.ingest.trace import Summary, TraceError

LOG = Path(__file__).resolve().parents[3] / "data" / "logs" / "nccl_two_ranks.log"


def read(path: Path) -> Summary:
    summary = ingest.read(path)
    assert isinstance(summary, Summary) and summary.format == "nccl-log"
    return summary


def of(tmp_path: Path, *lines: str) -> Summary:
    path = tmp_path / "nccl.log"
    path.write_text("\n".join(lines) + "\n")
    return read(path)


def rows(summary: Summary, title: str) -> list[dict[str, Any]]:
    table = next(table for table in summary.tables if table.title == title)
    return [dict(zip((column.name for column in table.columns), row, strict=True)) for row in table.rows]


def test_two_ranks_of_one_node() -> None:
    summary = read(LOG)
    integrity = summary.integrity
    assert integrity.records_read == integrity.records_kept + sum(integrity.not_kept.values()) == 69
    assert summary.metadata["headline"] == ("NCCL 2.21.5, CUDA 12.4: 2 ranks on 1 node over P2P/CUMEM; 9 calls, most bytes in "
                                            "AllReduce; 1 warning.")
    large, gathered, small = rows(summary, "Collectives")
    assert (large["Collective"], large["Size"], large["Type"], large["Calls"], large["Bytes"]) == (
        "AllReduce", 25165824 * 2, "bfloat16", 3, 3 * 25165824 * 2)
    assert (large["Algorithm"], large["Protocol"], large["Model"]) == ("Ring", "Simple", 371_500)
    assert (gathered["Size"], gathered["Algorithm"]) == (1048576 * 2, "Ring")         # chosen for what both gather together
    assert (small["Size"], small["Algorithm"], small["Protocol"], small["Ranks calling"]) == (4096, "Tree", "LL", 2)
    (comm,) = rows(summary, "Communicators")
    assert (comm["Ranks"], comm["Nodes"], comm["In this log"], comm["Channels"], comm["Network"]) == (2, 1, 2, 2, "Socket")
    assert [(row["Rank"], row["Bus"], row["Initialisation"]) for row in rows(summary, "Ranks")] == [
        (0, "0000:18:00.0", 420_000_000), (1, "0000:2a:00.0", 420_000_000)]
    assert [(row["From rank"], row["To rank"], row["Transport"], row["Which"]) for row in rows(summary, "Connections")] == [
        (0, 1, "P2P/CUMEM/read", "0–1"), (1, 0, "P2P/CUMEM/read", "0–1")]
    assert [row["Ranks in order"] for row in rows(summary, "Rings")] == ["0 → 1", "0 → 1"]
    assert [(row["Root"], row["Child → parent"]) for row in rows(summary, "Trees")] == [("0", "1 → 0")] * 2
    assert rows(summary, "Warnings")[0]["Place"] == "misc/socket.cc:484"
    assert rows(summary, "Settings") == [{"Variable": "NCCL_P2P_LEVEL", "Value": "NVL"}]
    assert len(rows(summary, "Topology")) == 6
    assert not integrity.not_kept
    assert {"Level": "INFO", "Text": "P#P Chunksize set to #", "Times": 2} in rows(summary, "Other lines")


def test_the_forms_of_2_10_name_the_communicator_last(tmp_path: Path) -> None:
    summary = of(tmp_path, "como:60725:60750 [2] NCCL INFO NCCL version 2.10.3+cuda11.3",
                 "como:60725:60750 [0] NCCL INFO Channel 00/02 :    0   1   2   3",
                 "como:60725:60750 [0] NCCL INFO Ring 01 : 3 -> 0 -> 1",
                 "como:60725:60750 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1",
                 "como:60725:60750 [0] NCCL INFO Channel 00 : 0[6000] -> 1[7000] via P2P/direct pointer",
                 "como:60725:60750 [0] NCCL INFO Channel 01 : 3[b000] -> 0[6000] [receive] via NET/IB/0/GDRDMA",
                 "como:60725:60750 [0] NCCL INFO comm 0x7f5128002e10 rank 0 nranks 4 cudaDev 0 busId 6000 - Init COMPLETE",
                 "como:60725:60750 [0] NCCL INFO Channel 00 : 0[6000] -> 2[a000] via direct shared memory")
    assert summary.metadata["NCCL"] == "2.10.3"
    assert [row["Ranks in order"] for row in rows(summary, "Rings")] == ["0 → 1 → 2 → 3", "0 → 1 → …"]
    assert {(row["From rank"], row["To rank"], row["Transport"], row["End"]) for row in rows(summary, "Connections")} == {
        (0, 1, "P2P/direct pointer", None), (3, 0, "NET/IB/0/GDRDMA", "receive"), (0, 2, "direct shared memory", None)}
    assert rows(summary, "Communicators")[0]["Communicator"] == "1 of 4 ranks"


def test_the_forms_of_2_28_behind_what_launchers_put_in_front(tmp_path: Path) -> None:
    init = ("ncclCommInitRankConfig comm 0x5f rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId 4b000 commId 0xabc - Init START",
            "comm 0x5f rank 3 nRanks 8 nNodes 2 localRanks 4 localRank 3 MNNVL 0",
            "Channel 00/0 : 3[3] -> 4[0] [send] via NET/IB/1/GDRDMA/Shared",
            "AllReduce: opCount 1f sendbuff 0x1 recvbuff 0x1 count 10 datatype 11 op 4 root 0 comm 0x5f [nranks=8] stream (nil)",
            "AllReduce: 10 Bytes -> Algo NVLS_TREE proto SIMPLE channel{Lo..Hi}={0..15}",
            "ncclCommSplit comm 0x60 rank 1 nranks 2 cudaDev 3 nvmlDev 3 busId 4b000 parent 0x5f splitCount 1 color 3 key 7"
            "- Init START",
            "Send: opCount 0 sendbuff 0x1 recvbuff (nil) count 4 datatype 99 op 0 root 1 comm 0x60 [nranks=2] stream 0x1")
    prefixes = ("[1,3]<stdout>:gpu-03:77:78 [3] NCCL INFO ", "[2026-11-23 10:20:30] gpu-03:77:78 [3] NCCL INFO ",
                "(RayTrainWorker pid=77, ip=10.0.0.3) gpu-03:77:78 [3] NCCL INFO ", "10:20:30 gpu-03:77:78 [3] NCCL INFO ")
    for prefix in prefixes:
        summary = of(tmp_path, *(prefix + text for text in init))
        first, second = rows(summary, "Collectives")
        assert (first["Algorithm"], first["Protocol"], first["Channels"], first["Type"], first["Operation"]) == (
            "NVLSTree", "Simple", 16, "float8 e5m2", "avg")
        assert (second["Collective"], second["Size"], second["Type"]) == ("Send", None, "type 99")
        assert {row["Communicator"] for row in rows(summary, "Communicators")} == {"0xabc", "split 3 of 0xabc (1)"}
        assert rows(summary, "Ranks")[0]["Host"] == "gpu-03"


def test_lines_of_a_communicator_that_is_never_named_are_counted(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="communicator"):
        of(tmp_path, "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC")


def test_hostile_lines_are_counted_and_take_no_time(tmp_path: Path) -> None:
    head = "h:1:2 [0] NCCL INFO "
    good = head + "comm 0x5f rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0"
    hostile = ["Trees" + " [0] 1/-1->0->-1" * 3_000 + "x", "Channel 00/02 :" + " 1" * 30_000 + "!",
               "a" * 60_000 + ": opCount", "Pattern 4, crossNic " + "9" * 60_000,
               "comm 0x5f rank 0 nranks 99999999999999999999 cudaDev 0 busId 1 - Init COMPLETE"]
    summary = of(tmp_path, good, *(head + text for text in hostile), "1:" * 30_000 + head, "[" * 60_000 + head)
    integrity = summary.integrity
    assert integrity.records_read == integrity.records_kept + sum(integrity.not_kept.values())
    assert parse_line("x NCCL INFO y") is None
