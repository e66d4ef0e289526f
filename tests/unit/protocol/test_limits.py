"""Limits that must agree with each other."""

from mitosis_protocol import limits


def test_every_limit_is_a_positive_whole_number():
    numbers = {name: value for name, value in vars(limits).items() if name.isupper()}
    assert numbers
    assert all(isinstance(value, int) and value > 0 for value in numbers.values())


def test_a_spec_fits_a_frame_and_a_frame_fits_a_body():
    assert 4 * limits.MAX_SPEC_BYTES <= limits.MAX_FRAME_BYTES <= limits.MAX_BODY_BYTES


def test_three_heartbeats_may_be_lost_before_a_lease():
    assert limits.LEASE_TTL_S >= 4 * limits.HEARTBEAT_INTERVAL_S
    assert limits.SELF_FENCE_MARGIN_S + limits.HEARTBEAT_INTERVAL_S < limits.LEASE_TTL_S


def test_prefetch_is_a_batch_on_small_hosts_and_grows_with_the_workers_up_to_the_cap():
    assert limits.max_prefetch(1) == limits.max_prefetch(32) == 128
    assert limits.max_prefetch(64) == 256
    assert limits.max_prefetch(10_000) == limits.MAX_PREFETCH


def test_an_inventory_holds_everything_a_manager_can_hold():
    assert limits.MAX_INVENTORY >= limits.MAX_PREFETCH + limits.MAX_WORKERS


def test_a_refusal_for_slowness_is_heard_before_the_manager_gives_up():
    assert limits.REQUEST_TIMEOUT_S == 30
    assert limits.ANSWER_WITHIN_S < limits.REQUEST_TIMEOUT_S
