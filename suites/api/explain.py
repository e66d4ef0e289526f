"""`explain`: why a suite or a task waits, per runner, and the smallest change that lets it run."""

import uuid
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.bodies import EnumField
from accounts.guards import current_user
from accounts.schema import describe
from accounts.views import UserView
from mitosis_protocol.enums import Role, RunnerKind
from suites.selectors import access_suite
from tasks.facts import Obstacle
from tasks.selectors import access_task
from tasks.services.explain import Explanation, explain_suite, explain_task
from tasks.verdicts import Verdict

MAX_SHOWN = 500  # of thousands of managers the nearest ones are the ones to act on


class ObstacleAnswer(serializers.Serializer[Any]):
    code = serializers.CharField(help_text="Stable; programs branch on it.")
    text = serializers.CharField()
    fix = serializers.CharField(help_text="The change that would remove it.")


class RunnerVerdict(serializers.Serializer[Any]):
    uuid = serializers.UUIDField()
    kind = EnumField(RunnerKind)
    verdict = serializers.CharField(help_text="`working`, `able` or `unable`.")
    obstacles = ObstacleAnswer(many=True)


class ExplainAnswer(serializers.Serializer[Any]):
    can_run = serializers.BooleanField(help_text="Some runner takes it now or at its next call.")
    summary = serializers.CharField()
    obstacles = ObstacleAnswer(many=True, help_text="About the suite or task itself.")
    managers = RunnerVerdict(many=True, help_text="The nearest to running first.")
    workers = RunnerVerdict(many=True, help_text="For tasks without a suite.")
    runner_count = serializers.IntegerField(help_text="Judged; lists may show fewer.")
    smallest_change = serializers.ListField(child=serializers.CharField())


class SuiteExplainView(UserView):
    @describe(summary="Why a suite's tasks wait", answer=ExplainAnswer, problems=(404,))
    def get(self, request: Request, suite_uuid: uuid.UUID) -> Response:
        user = current_user(request)
        suite = access_suite(user, suite_uuid, Role.READ).suite
        return Response(_answer(explain_suite(user=user, suite=suite)))


class TaskExplainView(UserView):
    @describe(summary="Why a task waits", answer=ExplainAnswer, problems=(404,))
    def get(self, request: Request, task_uuid: uuid.UUID) -> Response:
        user = current_user(request)
        task = access_task(user, task_uuid, Role.READ)
        return Response(_answer(explain_task(user=user, task=task)))


def _answer(found: Explanation) -> dict[str, object]:
    shown = found.verdicts[:MAX_SHOWN]
    managers = [one for one in shown if one.runner.kind is RunnerKind.MANAGER]
    workers = [one for one in shown if one.runner.kind is not RunnerKind.MANAGER]
    return {
        "can_run": found.can_run,
        "summary": found.summary,
        "obstacles": [_obstacle(one) for one in found.about],
        "managers": [_verdict(one) for one in managers],
        "workers": [_verdict(one) for one in workers],
        "runner_count": len(found.verdicts),
        "smallest_change": found.changes,
    }


def _verdict(verdict: Verdict) -> dict[str, object]:
    word = "working" if verdict.is_engaged else "able"
    return {
        "uuid": str(verdict.runner.uuid),
        "kind": verdict.runner.kind.value,
        "verdict": word if verdict.is_able else "unable",
        "obstacles": [_obstacle(one) for one in verdict.obstacles],
    }


def _obstacle(one: Obstacle) -> dict[str, str]:
    return {"code": one.code, "text": one.text, "fix": one.fix}
