"""Wire strings, database integers and accepted spellings are promises to existing clients."""

import json
import pickle

import msgspec
import pytest

from mitosis_protocol import enums
from mitosis_protocol.enums import CodedEnum
from mitosis_protocol.errors import InvalidValue

ALL = [
    kind
    for kind in vars(enums).values()
    if isinstance(kind, type) and issubclass(kind, CodedEnum) and kind is not CodedEnum
]

# The table of the existing API; changing a line here breaks clients or stored rows.
PUBLISHED = {
    enums.TaskState: {
        "Pending": 0,
        "Ready": 1,
        "Running": 2,
        "Finished": 3,
        "Cancelled": 4,
        "Unknown": 5,
    },
    enums.UserState: {"Active": 0, "Locked": 1, "Deleted": 2},
    enums.GroupState: {"Active": 0, "Locked": 1, "Deleted": 2},
    enums.WorkerState: {"Normal": 0, "GracefulShutdown": 1},
    enums.Role: {"Read": 0, "Write": 1, "Admin": 2},
    enums.ArtifactContentType: {"result": 0, "exec-log": 1, "std-log": 2},
    enums.AttachmentContentType: {"NotSet": 0},
    enums.SuiteState: {"Open": 0, "Closed": 1, "Complete": 2, "Cancelled": 3},
    enums.ManagerState: {"Idle": 0, "Preparing": 1, "Executing": 2, "Cleanup": 3, "Offline": 4},
    enums.SelectionType: {"UserSpecified": 0, "TagMatched": 1},
    enums.TaskPhase: {"pending": 0, "ready": 1, "leased": 2, "running": 3, "finishing": 4},
    enums.TaskExecState: {
        "WorkerExited": -1,
        "FetchResource": 1,
        "FetchResourceFinished": 2,
        "FetchResourceError": 3,
        "FetchResourceTimeout": 4,
        "FetchResourceNotFound": 5,
        "FetchResourceForbidden": 6,
        "Watch": 7,
        "WatchFinished": 8,
        "WatchTimeout": 9,
        "ExecPending": 10,
        "ExecSpawned": 11,
        "ExecFinished": 12,
        "ExecTimeout": 13,
        "UploadResult": 14,
        "UploadFinishedResult": 15,
        "UploadCancelledResult": 16,
        "UploadResultFinished": 17,
        "UploadResultTimeout": 18,
        "TaskCommitted": 19,
        "Unknown": -99,
    },
}


@pytest.mark.parametrize("kind", PUBLISHED, ids=lambda kind: kind.__name__)
def test_published_strings_and_codes_never_change(kind):
    assert {member.value: member.code for member in kind} == PUBLISHED[kind]


def test_result_messages_are_the_eight_that_clients_validate():
    assert {member.value for member in enums.TaskResultMessage} == {
        "FetchResourceTimeout",
        "ExecTimeout",
        "UploadResultTimeout",
        "ResourceNotFound",
        "ResourceForbidden",
        "WatchTimeout",
        "UserCancellation",
        "SubmitNewTaskFailed",
    }


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_enum_survives_json_msgpack_pickle_and_its_code(kind):
    codes = [member.code for member in kind]
    assert len(set(codes)) == len(codes)
    for member in kind:
        assert kind.from_code(member.code) is member
        assert kind.parse(member.value) is member
        assert str(member) == member.value == f"{member}"
        assert json.loads(json.dumps(member)) == member.value
        assert msgspec.json.decode(msgspec.json.encode(member), type=kind) is member
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(member), type=kind) is member
        assert pickle.loads(pickle.dumps(member)) is member


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_no_spelling_means_two_members(kind):
    spellings = [text for member in kind for text in (member.value, *member.aliases)]
    assert len(set(spellings)) == len(spellings)


@pytest.mark.parametrize(
    ("kind", "text", "member"),
    [
        (enums.Role, "admin", enums.Role.ADMIN),
        (enums.Role, "WRITE", enums.Role.WRITE),
        (enums.ShutdownOp, "force", enums.ShutdownOp.FORCE),
        (enums.AttachmentContentType, "NoSet", enums.AttachmentContentType.NOT_SET),
        *(
            (enums.ArtifactContentType, text, enums.ArtifactContentType.RESULT)
            for text in ("result", "Result", "RESULT")
        ),
        *(
            (enums.ArtifactContentType, text, enums.ArtifactContentType.EXEC_LOG)
            for text in ("exec", "Exec", "EXEC", "execlog", "ExecLog", "Execlog", "EXECLOG")
        ),
        *(
            (enums.ArtifactContentType, text, enums.ArtifactContentType.STD_LOG)
            for text in ("std", "Std", "STD", "stdlog", "Stdlog", "STDLOG", "terminal", "TERMINAL")
        ),
    ],
)
def test_spellings_of_existing_clients_are_understood_everywhere(kind, text, member):
    assert kind.parse(text) is member
    assert msgspec.json.decode(json.dumps(text), type=kind) is member


@pytest.mark.parametrize("text", ["aDMIN", "", "Owner", "admin ", "x" * 5000])
def test_an_unknown_spelling_is_refused_with_the_choices(text):
    with pytest.raises(InvalidValue, match="Read, Write, Admin") as refusal:
        enums.Role.parse(text)
    assert len(str(refusal.value)) < 200


def test_an_unknown_code_is_refused():
    with pytest.raises(InvalidValue, match="7 is not the code of a Role"):
        enums.Role.from_code(7)


def test_roles_are_ordered_by_strength_and_not_by_spelling():
    assert enums.Role.ADMIN > enums.Role.WRITE > enums.Role.READ
    assert enums.Role.READ <= enums.Role.READ < enums.Role.ADMIN >= enums.Role.ADMIN
    assert enums.Role.ADMIN.allows(enums.Role.READ)
    assert not enums.Role.READ.allows(enums.Role.WRITE)


def test_comparing_a_role_with_plain_text_is_an_error_not_a_guess():
    with pytest.raises(TypeError):
        _ = enums.Role.ADMIN > "Read"
    with pytest.raises(TypeError):
        _ = enums.Role.ADMIN >= enums.SuiteState.OPEN


def test_phases_are_shown_to_existing_clients_as_states_they_know():
    shown = {phase: phase.wire for phase in enums.TaskPhase}
    assert shown == {
        enums.TaskPhase.PENDING: enums.TaskState.PENDING,
        enums.TaskPhase.READY: enums.TaskState.READY,
        enums.TaskPhase.LEASED: enums.TaskState.RUNNING,
        enums.TaskPhase.RUNNING: enums.TaskState.RUNNING,
        enums.TaskPhase.FINISHING: enums.TaskState.FINISHED,
    }
    assert enums.TaskPhase.FINISHING.wire_for(cancelled=True) is enums.TaskState.CANCELLED
    assert enums.TaskPhase.RUNNING.wire_for(cancelled=True) is enums.TaskState.RUNNING


def test_outcomes_are_shown_to_existing_clients_as_finished_or_cancelled():
    cancelled = {o for o in enums.Outcome if o.wire is enums.TaskState.CANCELLED}
    assert cancelled == {
        enums.Outcome.TIMEOUT,
        enums.Outcome.CANCELLED,
        enums.Outcome.UPSTREAM_FAILED,
    }
    assert all(o.wire is enums.TaskState.FINISHED for o in enums.Outcome if o not in cancelled)
