"""`make bench` as a whole: one benchmark that fails takes nothing from the others."""

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as bench
from benchmarks import report
from benchmarks.measure import Figure, Row


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    return tmp_path


def _measures() -> list[Row]:
    return [Row("good", Figure((1.0, 2.0, 3.0), "s"), peer_name="Absent", notes=["missing: why"])]


def _fails() -> list[Row]:
    raise TimeoutError("it took too long")


def _is_stopped() -> list[Row]:
    raise KeyboardInterrupt


def _written(results: Path) -> dict[str, object]:
    document: dict[str, object] = json.loads((results / "latest.json").read_text())
    return document


def test_the_others_run_and_are_written_when_one_fails(
    results: Path, capsys: pytest.CaptureFixture[str]
):
    assert bench.run_all({"bad": _fails, "good": _measures}) == 1
    said = capsys.readouterr().out
    assert "failed: bad: TimeoutError: it took too long" in said
    assert "Absent missing" in said
    written = _written(results)
    assert written["failures"] == {"bad": "TimeoutError: it took too long"}
    assert [row["name"] for row in written["rows"]] == ["good"]


def test_what_was_measured_is_written_when_somebody_stops_the_run(results: Path):
    with pytest.raises(KeyboardInterrupt):
        bench.run_all({"good": _measures, "long": _is_stopped})
    assert [row["name"] for row in _written(results)["rows"]] == ["good"]


def test_a_run_without_failures_ends_with_success(results: Path):
    assert bench.run_all({"good": _measures}) == 0
    assert _written(results)["failures"] == {}


def test_parts_of_other_benchmarks_run_only_when_they_are_named(monkeypatch: pytest.MonkeyPatch):
    ran: list[str] = []
    monkeypatch.setattr(bench, "run_all", lambda chosen: ran.extend(chosen) or 0)
    assert bench.main([]) == 0
    assert "throughput" in ran
    assert "peers" not in ran
    assert bench.main(["peers"]) == 0
    assert ran[-1] == "peers"
    assert bench.main(["nothing"]) == 2
