import errno

import numpy as np
import pytest

from pdlrecover.errors import HistoryError
from pdlrecover.history import ArrayLog, DealtSums, Layout, RunHistory

LAYOUT = Layout(parameters=3, cohorts=((0, 2), (1,)), record=(4,), run="this one")


def recorded(folder, rounds=3):
    history = RunHistory(LAYOUT, folder)
    for t in range(rounds):
        history.record(np.full(3, float(t)), DealtSums(values=np.full((2, 4), t)))
    return history


def test_what_is_recorded_is_read_again(tmp_path):
    recorded(tmp_path)
    again = RunHistory(LAYOUT, tmp_path)
    assert len(again.sums) == len(again.models) == 3
    np.testing.assert_array_equal(again.models[1], np.ones(3))
    np.testing.assert_array_equal(again.sums[-1], np.full((2, 4), 2))
    assert not again.finished
    again.finish(np.zeros(3))
    assert again.finished


def test_a_half_written_history_is_found_and_says_what_is_whole(tmp_path):
    recorded(tmp_path)
    path = tmp_path / "sums.bin"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(HistoryError, match=r"sums.bin ends in the middle of record 2: 2 records"):
        RunHistory(LAYOUT, tmp_path)


def test_resuming_keeps_the_whole_rounds(tmp_path):
    recorded(tmp_path)
    path = tmp_path / "sums.bin"
    path.write_bytes(path.read_bytes()[:-5])
    again = RunHistory(LAYOUT, tmp_path, resume=True)
    assert len(again.sums) == len(again.models) == 2


def test_another_runs_history_is_refused(tmp_path):
    recorded(tmp_path)
    other = Layout(parameters=3, cohorts=((0, 2), (1,)), record=(4,), run="another")
    with pytest.raises(HistoryError, match="another run's: its run differs"):
        RunHistory(other, tmp_path)
    (tmp_path / "layout.json").write_text("{")
    with pytest.raises(HistoryError, match=r"layout.json is damaged"):
        RunHistory(LAYOUT, tmp_path)


def test_a_cohort_cannot_be_cut():
    history = RunHistory(LAYOUT)
    assert history.cohorts_of([0, 2]) == [0]
    assert history.cohorts_of([0, 1, 2]) == [0, 1]
    with pytest.raises(HistoryError, match="peer 2 stood in one sum with 1 kept"):
        history.cohorts_of([0, 1])


def test_records_of_another_shape_are_refused(tmp_path):
    log = ArrayLog(tmp_path / "log.bin", (2,), np.int64)
    with pytest.raises(HistoryError, match=r"int64 arrays of shape \(2,\), got float64"):
        log.append(np.zeros(2))
    with pytest.raises(IndexError, match="has 0 records"):
        log[0]


def test_a_full_disk_is_said_and_nothing_counts(tmp_path, monkeypatch):
    log = ArrayLog(tmp_path / "log.bin", (2,), np.int64)
    log.append(np.zeros(2, dtype=np.int64))

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(type(log.path), "open", full)
    with pytest.raises(HistoryError, match=r"round 1 could not be written .* No space left"):
        log.append(np.zeros(2, dtype=np.int64))
    assert len(log) == 1


def test_discarding_leaves_no_files(tmp_path):
    history = recorded(tmp_path / "history")
    history.discard()
    assert not (tmp_path / "history").exists()


def test_what_a_failed_write_has_left_is_overwritten(tmp_path):
    log = ArrayLog(tmp_path / "log.bin", (4,), np.int64)
    log.append(np.zeros(4, dtype=np.int64))
    with log.path.open("ab") as file:  # a disk that was full in the middle of a record
        file.write(np.full(2, -1).tobytes())
    log.append(np.full(4, 2))
    np.testing.assert_array_equal(log[1], np.full(4, 2))
    np.testing.assert_array_equal(ArrayLog(log.path, (4,), np.int64)[1], np.full(4, 2))


def test_a_round_that_was_recorded_by_half_is_recorded_again(tmp_path):
    history = recorded(tmp_path)
    history.sums.append(np.full((2, 4), 9))
    assert history.rounds == 3
    history.record(np.full(3, 3.0), DealtSums(values=np.full((2, 4), 3)))
    np.testing.assert_array_equal(history.sums[3], np.full((2, 4), 3))
    assert len(history.sums) == len(history.models) == 4


def test_a_history_that_was_half_discarded_starts_over(tmp_path):
    recorded(tmp_path)
    (tmp_path / "sums.bin").unlink()
    again = RunHistory(LAYOUT, tmp_path, resume=True)
    assert again.rounds == 0
    again.record(np.zeros(3), DealtSums(values=np.zeros((2, 4), dtype=np.int64)))
    assert len(again.sums) == len(again.models) == 1
