"""The policy: overrides by the environment, and numbers that must fit together."""

from dataclasses import FrozenInstanceError, fields, replace

import pytest
from django.conf import settings

from mitosis_site.checks import check_policy
from mitosis_site.policy import Policy, PolicyError, build_policy, policy_problems


def test_the_defaults_fit_together():
    assert policy_problems(Policy()) == []


def test_a_lease_lasts_at_least_four_heartbeats():
    policy = Policy()
    assert policy.lease_ttl_s >= 4 * policy.heartbeat_s
    assert policy_problems(replace(policy, heartbeat_s=policy.lease_ttl_s / 4)) == []
    [problem] = policy_problems(replace(policy, heartbeat_s=policy.lease_ttl_s / 4 + 0.1))
    assert "lease_ttl_s" in problem


def test_an_override_changes_one_number_and_keeps_its_kind():
    policy = build_policy({"max_failures": 3.0, "suite_linger_s": 0.0})
    assert policy.max_failures == 3
    assert isinstance(policy.max_failures, int)
    assert policy.suite_linger_s == 0
    assert replace(policy, max_failures=6, suite_linger_s=60) == Policy()


@pytest.mark.parametrize(
    ("overrides", "word"),
    [
        ({"hartbeat_s": 1.0}, "hartbeat_s"),
        ({"anonymous_requests_per_s": 1.0}, "anonymous_requests_per_s"),  # nobody would read it
        ({"max_failures": 2.5}, "whole number"),
        ({"heartbeat_s": 31.0}, "lease_ttl_s"),
        ({"heartbeat_s": 0.0}, "positive"),
        ({"sweep_s": -1.0}, "positive"),
        ({"body_bytes": 2.0**30}, "bulk_body_bytes"),
        ({"lock_timeout_s": 60.0}, "statement_timeout_s"),
        ({"cancel_silence_s": 5.0}, "cancel_grace_s"),
        ({"page_rows": 501.0}, "page_rows_max"),
        ({"manager_access_s": 1e9}, "token_lifetime_max_s"),
    ],
)
def test_an_override_that_cannot_work_is_refused(overrides: dict[str, float], word: str):
    with pytest.raises(PolicyError, match=word):
        build_policy(overrides)


def test_nobody_changes_the_policy_of_a_running_process():
    with pytest.raises(FrozenInstanceError):
        settings.MITOSIS.heartbeat_s = 1


def test_every_number_has_a_unit_in_its_name_or_is_a_count():
    durations = [item.name for item in fields(Policy) if item.type is float]
    assert [name for name in durations if not name.endswith(("_s", "_ratio", "_pct"))] == []


def test_the_system_check_reports_what_settings_overrode(settings):
    assert check_policy(None) == []
    settings.MITOSIS = replace(settings.MITOSIS, heartbeat_s=100)
    [message] = check_policy(None)
    assert message.id == "mitosis.E001"
