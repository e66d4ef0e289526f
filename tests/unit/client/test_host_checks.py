"""What `mitosis doctor` concludes."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

from mitosis_client.host_checks import _clock, _disk

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_a_clock_that_is_far_off_makes_a_host_unfit():
    def level(offset_s: float) -> str:
        theirs = format_datetime(NOW + timedelta(seconds=offset_s), usegmt=True)
        return _clock(theirs, NOW, NOW).level

    assert level(0) == level(5) == level(-5) == "ok"
    assert level(60) == level(-60) == "error"
    assert _clock("gibberish", NOW, NOW).level == "warning"


def test_the_disk_is_judged_where_the_directory_will_be(tmp_path: Path):
    found = _disk(tmp_path / "not" / "yet")
    assert str(tmp_path) in found.found
    assert found.level in ("ok", "warning")
