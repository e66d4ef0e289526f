"""What a manager may read for a task in hand that waits for another one (`watch`)."""

import uuid

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.schema import describe
from runners.authentication import ManagerTokenAuthentication, RunnerRequired, current_identity
from tasks.api.info import artifact_infos, task_infos
from tasks.models import ActiveTask
from tasks.selectors import absent, find_task
from tasks.selectors_uploads import list_artifacts
from tasks.serializers import TaskAnswer


class WatchedTaskView(APIView):
    authentication_classes = (ManagerTokenAuthentication,)
    permission_classes = (RunnerRequired,)

    @describe(
        summary="A task of a group whose task the manager holds right now",
        answer=TaskAnswer,
        problems=(404,),
    )
    def get(self, request: Request, task_uuid: uuid.UUID) -> Response:
        task = find_task(task_uuid)
        if task is None or not _holds_task_of(current_identity(request).id, task.group_id):
            raise absent(task_uuid)
        [info] = task_infos([task])
        return Response({"info": info, "artifacts": artifact_infos(list_artifacts(task))})


def _holds_task_of(manager_id: int, group_id: int) -> bool:
    return ActiveTask.objects.filter(runner_id=manager_id, group_id=group_id).exists()
