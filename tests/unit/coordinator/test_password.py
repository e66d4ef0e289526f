"""Password hashes: one hash for the digest on the wire and for the text typed into the console."""

import hashlib
import time

import pytest
from argon2 import PasswordHasher, Type
from django.contrib.auth.hashers import check_password, identify_hasher, make_password

from accounts.password import (
    check_md5_password,
    check_plain_password,
    encode_md5_password,
    encode_plain_password,
    md5_of,
    needs_rehash,
    spend_like_a_check,
)

PLAIN = "correct horse"
DIGEST = hashlib.md5(PLAIN.encode()).digest()


def test_the_typed_password_and_the_digest_on_the_wire_open_the_same_hash() -> None:
    for encoded in (encode_md5_password(DIGEST), encode_plain_password(PLAIN)):
        assert check_md5_password(DIGEST, encoded)
        assert check_plain_password(PLAIN, encoded)
        assert not check_md5_password(bytes(16), encoded)
        assert not check_plain_password(PLAIN + "!", encoded)


def test_the_hash_is_argon2id_over_the_raw_bytes() -> None:
    phc = encode_md5_password(DIGEST).removeprefix("argon2_md5")
    assert phc.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert PasswordHasher().verify(phc, DIGEST)


def test_two_hashes_of_one_password_differ_and_fit_the_column() -> None:
    first, again = encode_md5_password(DIGEST), encode_md5_password(DIGEST)
    assert first != again
    assert len(first) <= 128


def test_the_hash_itself_is_no_password() -> None:
    encoded = encode_md5_password(DIGEST)
    assert not check_plain_password(encoded, encoded)
    assert not check_plain_password(DIGEST.hex(), encoded)


@pytest.mark.parametrize("digest", [b"", b"x" * 15, b"x" * 17])
def test_only_digests_are_stored(digest: bytes) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        encode_md5_password(digest)


@pytest.mark.parametrize(
    "stored", ["", "!", "plain", "argon2_md5", "argon2_md5$argon2id$broken", "md5$a$b", "!argon2"]
)
def test_an_unusable_hash_matches_nothing(stored: str) -> None:
    assert not check_md5_password(DIGEST, stored)
    assert not check_plain_password("", stored)


def test_no_password_means_no_login() -> None:
    assert not check_plain_password("", encode_plain_password(None))


def test_text_outside_unicode_is_hashed_not_crashed_on() -> None:
    assert check_plain_password("\ud800", encode_plain_password("\ud800"))


def test_an_unknown_user_costs_what_a_wrong_password_costs() -> None:
    encoded = encode_md5_password(DIGEST)
    spend_like_a_check(DIGEST)  # makes the decoy

    def cost(call: object, *args: object) -> float:
        rounds = []
        for _ in range(7):
            # Processor time: what others do on the machine does not count.
            start = time.process_time()
            call(*args)  # type: ignore[operator]
            rounds.append(time.process_time() - start)
        return min(rounds)

    known = cost(check_md5_password, bytes(16), encoded)
    unknown = cost(spend_like_a_check, DIGEST)
    assert 0.5 < unknown / known < 2
    # Both really do the work: a check that returns early takes microseconds.
    assert unknown > 0.003


def test_old_parameters_ask_for_a_new_hash() -> None:
    weak = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1, type=Type.ID).hash(DIGEST)
    assert needs_rehash(f"argon2_md5{weak}")
    assert check_md5_password(DIGEST, f"argon2_md5{weak}")
    assert not needs_rehash(encode_md5_password(DIGEST))


def test_django_itself_uses_the_same_hash() -> None:
    encoded = make_password(PLAIN)
    assert encoded.startswith("argon2_md5$argon2id$")
    assert check_password(PLAIN, encoded)
    assert check_md5_password(md5_of(PLAIN), encoded)
    summary = identify_hasher(encoded).safe_summary(encoded)
    assert "hash" not in summary
    assert summary["memory_cost"] == 19_456
