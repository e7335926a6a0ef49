"""Directories that a node must not go on with: it does not start, and says what is wrong and where."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster, cluster
from tests.cluster.node import Node, StartFailed

ALONE = "segment_bytes=4096"


async def write_some(nodes: Cluster, count: int = 100) -> None:
    for number in range(count):
        answer = await nodes.nodes[0].ask("write", name=f"r{number}", value=number)
        assert answer.get("ok") is True, answer


def files_of_log(node: Node) -> list[Path]:
    return sorted(node.place.data.glob("gen-*/log/*.log"))


async def refused(node: Node) -> str:
    """What it says instead of starting."""
    with pytest.raises(StartFailed) as failed:
        await node.start()
    assert failed.value.status == 1
    assert failed.value.told.count("does not start: ") == 1
    assert "Traceback" not in failed.value.told
    return failed.value.told


async def test_a_log_that_is_damaged_in_the_middle_is_refused_with_file_and_offset(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, ALONE) as nodes:
        node = nodes.nodes[0]
        await write_some(nodes)
        await node.kill()
        file = files_of_log(node)[1]
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0x40
        file.write_bytes(data)
        told = await refused(node)
        assert f"{file}, offset " in told
        offset = int(told.split(f"{file}, offset ")[1].split(":")[0])
        assert 0 < offset <= len(data) // 2
        assert "rejoin" in told
        assert file.read_bytes() == data


async def test_a_file_of_the_log_that_is_missing_is_named(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, ALONE) as nodes:
        node = nodes.nodes[0]
        await write_some(nodes)
        await node.kill()
        file = files_of_log(node)[1]
        file.unlink()
        assert f"{file}, offset 0: the file is missing" in await refused(node)


async def test_a_torn_tail_is_cut_and_said(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        node = nodes.nodes[0]
        await write_some(nodes)
        await node.kill()
        file = files_of_log(node)[-1]
        whole = file.read_bytes()
        # Half of a record that was being written when the power went.
        with file.open("ab") as end:
            end.write(whole[-40:-7])
        await node.start()
        assert [line["what"] for line in node.heard("log recovered")] == [
            f"{file}: 33 bytes of a torn write cut at offset {len(whole)}"
        ]
        await nodes.master()
        assert (await node.ask("read", name="r99"))["ok"] == 99


async def test_a_tail_that_the_state_has_applied_is_no_torn_one(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        node = nodes.nodes[0]
        await write_some(nodes)
        await node.stop()
        file = files_of_log(node)[-1]
        with file.open("r+b") as log:
            log.truncate(file.stat().st_size - 5)
        assert f"{file}, offset " in await refused(node)


async def test_a_second_process_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        node = nodes.nodes[0]
        second = Node(replace(node.place, peer="127.0.0.1:0", client="127.0.0.1:0"))
        assert f"{node.place.data} is in use by process {node.pid}" in await refused(second)
        await write_some(nodes, 3)


@pytest.mark.parametrize("file", ["identity", "ballot", "current"])
async def test_a_newer_format_is_refused(file: str, tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        node = nodes.nodes[0]
        await write_some(nodes, 3)
        await node.stop()
        path = node.place.data / file
        words = path.read_text().split(" ", 2)
        path.write_text(" ".join([words[0], str(int(words[1]) + 1), words[2]]))
        told = await refused(node)
        assert f"{path} has format 2, this program knows formats up to 1" in told


async def test_a_log_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        node = nodes.nodes[0]
        await write_some(nodes, 3)
        await node.stop()
        file = files_of_log(node)[-1]
        data = bytearray(file.read_bytes())
        assert data[8:12] == b"\1\0\0\0"
        data[8] = 2
        file.write_bytes(data)
        assert f"{file}, offset 0" in await refused(node)


async def test_a_refused_node_rejoins_with_an_empty_directory(tmp_path: Path) -> None:
    """What the message advises is what works."""
    async with cluster(tmp_path) as nodes:
        await write_some(nodes)
        master = await nodes.master()
        node = nodes.others(master)[0]
        await node.kill()
        file = files_of_log(node)[-1]
        data = bytearray(file.read_bytes())
        data[len(data) // 3] ^= 1
        file.write_bytes(data)
        assert f"{file}, offset " in await refused(node)
        old_id = node.id
        shutil.rmtree(node.place.data)
        await node.start()
        advice = f"quvatlh cluster add {(await node.status())['node']} {node.place.peer}"
        status = await node.until(lambda status: advice in status["waiting_for"], f"says `{advice}`")
        assert "ok" in await master.ask("remove_member", node=old_id)
        added = await master.ask("add_member", node=status["node"], name=node.name, peer=node.place.peer)
        assert status["node"] in added["ok"], added
        await nodes.settled()
        assert (await node.ask("local", name="r99"))["ok"] == 99
