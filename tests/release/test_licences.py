"""What an installation brings along may be used and passed on."""

from tests.release import licences


def test_every_licence_is_accepted() -> None:
    assert licences.problems() == []


def test_strong_copyleft_is_not() -> None:
    for refused in ("GPL-3.0-only", "AGPL-3.0-or-later", "GNU General Public License v2", ""):
        assert not licences.ACCEPTED.search(refused)
