"""What a killed writer leaves is made right by the next: no row lost that was durable, none twice."""

from __future__ import annotations

import json
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill_api.store import StoreLine
from draftmill_jobs.errors import JobFailedError, JobRefusedError
from draftmill_jobs.shared.lock import FolderInUseError
from draftmill_jobs.shared.settings import Share
from draftmill_jobs.store import Check, Store, StoreRow
from draftmill_jobs.store.folder import index_part, shard_path
from draftmill_jobs.store.lines import read_lines
from draftmill_jobs.store.rows import encode_row
from draftmill_jobs.store.shard import OpenShard
from tests.support.states import RUN, binding, row, writer, written

ROWS = [row(number) for number in range(14)]


def _nothing() -> None:
    """Nobody waits."""


def _append_missing(folder: Path, rows: list[StoreRow]) -> int:
    """Goes on as an extractor does; returns how many rows were there already."""
    there = 0
    with writer(folder) as store:
        for each in rows:
            if store.holds(each.facts.key, each.token_ids):
                there += 1
            else:
                store.append(each, _nothing)
        store.seal()
    return there


def _assert_whole(folder: Path, rows: list[StoreRow]) -> None:
    with Store.open(folder, check=Check.HASHES) as store:
        assert sorted(each.line.id for each in store) == sorted(each.facts.id for each in rows)
    assert [path.name for path in folder.iterdir() if path.suffix in {".partial", ".journal"}] == []


def _interrupted(folder: Path, durable: int, loose: int) -> None:
    """What a kill leaves of a writer with so many durable rows in its open shard, and some that are not."""
    live = folder / "live"
    with writer(live, shard_bytes=1 << 20, group_seconds=3600) as store:
        for each in ROWS[:durable]:
            store.append(each, _nothing)
        store.flush()
        for each in ROWS[durable : durable + loose]:
            store.append(each, _nothing)
        shutil.copytree(live, folder, dirs_exist_ok=True)
    shutil.rmtree(live)


def test_rows_of_the_open_shard_are_kept(tmp_path: Path) -> None:
    _interrupted(tmp_path, durable=6, loose=3)

    assert _append_missing(tmp_path, ROWS) == 6

    _assert_whole(tmp_path, ROWS)


def test_closing_keeps_the_open_shard_open_for_the_next_start(tmp_path: Path) -> None:
    with writer(tmp_path, shard_bytes=1 << 20) as store:
        for each in ROWS[:5]:
            store.append(each, _nothing)
    with writer(tmp_path, shard_bytes=1 << 20) as store:
        assert [store.holds(each.facts.key, each.token_ids) for each in ROWS[:6]] == [True] * 5 + [False]
        for each in ROWS[5:]:
            store.append(each, _nothing)
        store.seal()

    assert len(list(tmp_path.glob("*.safetensors"))) == 1
    _assert_whole(tmp_path, ROWS)


@settings(max_examples=25)
@given(st.data())
def test_a_kill_at_any_instant_loses_nothing_that_was_durable(data: st.DataObject) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        durable = data.draw(st.integers(0, 9))
        _interrupted(folder, durable=durable, loose=data.draw(st.integers(1, 4)))
        (blocks,) = folder.glob("*.partial")
        journal = blocks.with_name(blocks.name.replace(".safetensors.partial", ".journal"))
        lines = journal.read_bytes().splitlines(keepends=True) if journal.exists() else []
        blocks_end = _end_of_blocks(lines) if lines else 0
        # A line is written only when its block is durable: the file may be cut anywhere behind the last one.
        kept = data.draw(st.integers(0, len(lines)))
        torn = data.draw(st.integers(0, len(lines[kept]) - 1)) if kept < len(lines) else 0
        journal.write_bytes(b"".join(lines[:kept]) + (lines[kept][:torn] if kept < len(lines) else b""))
        size = blocks.stat().st_size
        with blocks.open("r+b") as file:
            file.truncate(data.draw(st.integers(min(blocks_end, size), size)))

        assert _append_missing(folder, ROWS) == kept

        _assert_whole(folder, ROWS)
    finally:
        shutil.rmtree(folder)


def _end_of_blocks(lines: list[bytes]) -> int:
    last = json.loads(lines[-1])["row"]
    return int(last["offset"]) + int(last["tokens"]) * (4 * 32 * 2 + 4)


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_a_shard_that_was_renamed_but_is_not_in_the_index_is_taken_in(tmp_path: Path, taken: int) -> None:
    with writer(tmp_path, shard_bytes=1 << 20) as store:
        for each in ROWS[:3]:
            store.append(each, _nothing)
        store.flush()
        (journal,) = tmp_path.glob("*.journal")
        kept = journal.read_bytes()
        store.seal()
    journal.write_bytes(kept)
    index = index_part(tmp_path, 0)
    lines = index.read_bytes().splitlines(keepends=True)
    index.write_bytes(b"".join(lines[:taken]) + (lines[taken][:40] if taken < 3 else b""))

    assert _append_missing(tmp_path, ROWS) == 3

    _assert_whole(tmp_path, ROWS)


def test_a_kill_between_header_and_rename_leaves_an_open_shard(tmp_path: Path) -> None:
    with writer(tmp_path, shard_bytes=1 << 20) as store:
        for each in ROWS[:4]:
            store.append(each, _nothing)
        store.flush()
        (journal,) = tmp_path.glob("*.journal")
        kept = journal.read_bytes()
        store.seal()
    (shard,) = tmp_path.glob("*.safetensors")
    shard.rename(shard.with_name(shard.name + ".partial"))
    index_part(tmp_path, 0).unlink()
    journal.write_bytes(kept)

    assert _append_missing(tmp_path, ROWS) == 4

    _assert_whole(tmp_path, ROWS)


def test_an_open_shard_without_a_journal_has_no_rows(tmp_path: Path) -> None:
    _interrupted(tmp_path, durable=2, loose=0)
    next(tmp_path.glob("*.journal")).unlink()

    assert _append_missing(tmp_path, ROWS) == 0

    _assert_whole(tmp_path, ROWS)


def test_a_full_shard_that_was_not_yet_sealed_is_sealed_and_the_next_one_goes_on(tmp_path: Path) -> None:
    with writer(tmp_path, shard_bytes=1 << 20) as store:
        for each in ROWS[:4]:
            store.append(each, _nothing)
    following = OpenShard(shard_path(tmp_path, 0, 1), binding(), header=8192)
    lines = [following.write(encode_row(each, binding())) for each in ROWS[4:7]]
    following.sync()
    following.journal(lines[:2])
    following.close()

    with writer(tmp_path, shard_bytes=1 << 20) as store:
        assert [path.name for path in tmp_path.glob("*.safetensors")] == ["states-w0-0.safetensors"]
        assert [store.holds(each.facts.key, each.token_ids) for each in ROWS[:7]] == [True] * 6 + [False]

    assert _append_missing(tmp_path, ROWS) == 6
    _assert_whole(tmp_path, ROWS)


def test_rows_of_several_threads_are_each_there_once_in_shards_that_are_sealed_meanwhile(
    tmp_path: Path,
) -> None:
    rows = [row(number) for number in range(200)]
    durable: list[str] = []
    with writer(tmp_path, group_seconds=0.01) as store, ThreadPoolExecutor(4) as threads:
        tell = [partial(durable.append, each.facts.id) for each in rows]
        for line in threads.map(store.append, rows, tell):
            assert line.shard.startswith("states-w0-")
        store.seal()

    assert sorted(durable) == sorted(each.facts.id for each in rows)
    assert len(list(tmp_path.glob("*.safetensors"))) > 10
    _assert_whole(tmp_path, rows)


def test_a_last_row_whose_block_is_not_what_the_journal_says_is_asked_for_again(tmp_path: Path) -> None:
    _interrupted(tmp_path, durable=6, loose=0)
    (blocks,) = tmp_path.glob("*.partial")
    content = bytearray(blocks.read_bytes())
    content[-100] ^= 1
    blocks.write_bytes(content)

    assert _append_missing(tmp_path, ROWS) == 5

    _assert_whole(tmp_path, ROWS)


def test_half_a_shard_under_its_final_name_is_never_accepted(tmp_path: Path) -> None:
    written(tmp_path, ROWS)
    shard = min(tmp_path.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-50])

    with pytest.raises(JobRefusedError, match=rf"{shard.name}: it has \d+ bytes, and its header names \d+"):
        Store.open(tmp_path, check=Check.HEADERS)


@pytest.mark.parametrize("kept", [0.5, 0.99], ids=["half", "but for its end"])
def test_half_a_shard_does_not_count_as_done_and_is_asked_for_again_when_it_is_removed(
    tmp_path: Path, kept: float
) -> None:
    """Reported failure 28 (NVIDIA/Model-Optimizer#2080): a truncated file counted as done."""
    written(tmp_path, ROWS)
    shard = min(tmp_path.glob("*.safetensors"))
    content = shard.read_bytes()
    shard.write_bytes(content[: int(len(content) * kept)])

    with pytest.raises(JobRefusedError, match=rf"{shard.name}: it has .* remove it and run again") as refused:
        writer(tmp_path)

    assert refused.value.reason == "StoreCorrupt"
    shard.unlink()
    assert 0 < _append_missing(tmp_path, ROWS) < len(ROWS)
    _assert_whole(tmp_path, ROWS)


def test_another_shard_in_the_place_of_one_is_refused(tmp_path: Path) -> None:
    written(tmp_path, ROWS)
    first, second, *_ = sorted(tmp_path.glob("*.safetensors"))
    first.write_bytes(second.read_bytes())

    with pytest.raises(JobRefusedError, match=rf"{first.name}: .* the index"):
        writer(tmp_path)


def test_half_a_shard_of_a_worker_that_there_is_no_longer_is_refused_too(tmp_path: Path) -> None:
    for worker in range(2):
        with writer(tmp_path, share=Share(worker, 2)) as store:
            for each in ROWS[worker::2]:
                store.append(each, _nothing)
            store.seal()
    with writer(tmp_path):
        pass
    shard = min(tmp_path.glob("states-w1-*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-50])

    with pytest.raises(JobRefusedError, match=rf"{shard.name}: it has"):
        writer(tmp_path)


def test_the_rows_of_a_shard_that_was_removed_are_asked_for_again(tmp_path: Path) -> None:
    written(tmp_path, ROWS)
    lost = read_lines(index_part(tmp_path, 0), StoreLine).values[0].shard
    (tmp_path / lost).unlink()

    assert 0 < _append_missing(tmp_path, ROWS) < len(ROWS)

    _assert_whole(tmp_path, ROWS)


def test_a_row_counts_as_durable_only_when_it_is(tmp_path: Path) -> None:
    durable: list[str] = []
    with writer(tmp_path, group_seconds=3600) as store:
        for each in ROWS[:2]:
            store.append(each, lambda name=each.facts.id: durable.append(name))  # type: ignore[misc]
        assert durable == []
        store.flush()
        assert durable == [each.facts.id for each in ROWS[:2]]
        (journal,) = tmp_path.glob("*.journal")
        assert len(journal.read_bytes().splitlines()) == 2


def test_two_writers_of_one_part_are_refused(tmp_path: Path) -> None:
    with writer(tmp_path), pytest.raises(FolderInUseError, match="is being written by run states"):
        writer(tmp_path)


def test_workers_write_side_by_side_and_the_merge_is_only_the_index(tmp_path: Path) -> None:
    with writer(tmp_path, share=Share(0, 2)) as first, writer(tmp_path, share=Share(1, 2)) as second:
        for each in ROWS[:7]:
            first.append(each, _nothing)
        for each in ROWS[7:]:
            second.append(each, _nothing)
        first.seal()
        second.seal()

    _assert_whole(tmp_path, ROWS)


def test_another_number_of_workers_goes_on_where_they_were(tmp_path: Path) -> None:
    for worker in range(3):
        with writer(tmp_path, share=Share(worker, 3), shard_bytes=1 << 20) as store:
            for each in ROWS[worker:9:3]:
                store.append(each, _nothing)

    assert _append_missing(tmp_path, ROWS) == 9

    _assert_whole(tmp_path, ROWS)


@pytest.mark.parametrize("first", range(3))
def test_more_workers_than_before_see_every_row_whichever_of_them_starts_first(
    tmp_path: Path, first: int
) -> None:
    with writer(tmp_path, shard_bytes=1 << 20) as store:
        for each in ROWS[:9]:
            store.append(each, _nothing)

    for worker in (first, *(other for other in range(3) if other != first)):
        with writer(tmp_path, share=Share(worker, 3)) as store:
            assert [store.holds(each.facts.key, each.token_ids) for each in ROWS[:10]] == [True] * 9 + [False]


def test_another_number_of_workers_is_refused_while_one_is_at_work(tmp_path: Path) -> None:
    with writer(tmp_path, share=Share(2, 3)), pytest.raises(FolderInUseError):
        writer(tmp_path)


def test_a_stranger_at_work_is_refused(tmp_path: Path) -> None:
    other = RUN.model_copy(update={"uid": "u2"})
    with writer(tmp_path, share=Share(1, 2), run=other), pytest.raises(FolderInUseError):
        writer(tmp_path, share=Share(0, 2))


def test_a_full_disk_ends_the_writer_and_every_later_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writer(tmp_path) as store:
        store.append(ROWS[0], _nothing)
        store.flush()

        def full(*_: object) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.pwritev", full)
        with pytest.raises(JobFailedError, match="No space left"):
            store.append(ROWS[1], _nothing)
        with pytest.raises(JobFailedError, match="No space left"):
            store.flush()
    monkeypatch.undo()

    assert _append_missing(tmp_path, ROWS) == 1
    _assert_whole(tmp_path, ROWS)


def test_the_manifest_goes_when_a_row_is_added_and_stays_when_none_is(tmp_path: Path) -> None:
    written(tmp_path, ROWS[:3])
    (tmp_path / "manifest.json").write_text("{}")
    with writer(tmp_path) as store:
        assert all(store.holds(each.facts.key, each.token_ids) for each in ROWS[:3])
    assert (tmp_path / "manifest.json").exists()

    written(tmp_path, ROWS[3:])

    assert not (tmp_path / "manifest.json").exists()
