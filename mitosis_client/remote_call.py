"""Python calls as tasks: how a call travels to a host and how its value or exception returns.

Values are pickled, so both ends have to trust each other and run the same minor version of
Python. With cloudpickle here any function goes, and hosts get a copy of it with the call; without,
those that can be imported there.
"""

import base64
import io
import pickle
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from mitosis_client.errors import ConfigError, MitosisError

cloudpickle: ModuleType | None
try:
    import cloudpickle  # type: ignore[import-not-found, import-untyped, no-redef, unused-ignore]
except ImportError:
    cloudpickle = None

# Of the pickled call: base64 of it has to fit a task's spec with room to spare.
MAX_INLINE_BYTES: Final = 24 * 1024
# Not MITO_...: agents keep those names for themselves.
CALL_VARIABLE: Final = "REMOTE_CALL"
CALL_FILE: Final = "call.pkl"
TOOLS_FILE: Final = "cloudpickle.zip"
VALUE_MEMBER: Final = "result/value.pkl"

# Runs on the host, with nothing but the standard library of the Python found there. The code of a
# function is of one minor version only; another one would do something wrong, or crash.
_PROGRAM: Final = """
import base64, os, pickle, sys, traceback
tools = os.path.join(os.environ["MITO_RESOURCE_DIR"], "cloudpickle.zip")
if os.path.exists(tools):
    sys.path.insert(0, tools)
inline = os.environ.pop("REMOTE_CALL", None)
if inline:
    data = base64.b64decode(inline)
else:
    with open(os.path.join(os.environ["MITO_RESOURCE_DIR"], "call.pkl"), "rb") as opened:
        data = opened.read()
try:
    if os.path.exists(tools) and sys.version_info[:2] != CALLER:
        raise RuntimeError(f"python3 is {sys.version} here, but the function is of Python {CALLER}")
    function, args, kwargs = pickle.loads(data)
    answer = (True, function(*args, **kwargs))
except BaseException as error:
    traceback.print_exc()
    answer = (False, error)
pickler = sys.modules.get("cloudpickle", pickle)
try:
    encoded = pickler.dumps(answer, protocol=4)
except Exception as error:
    encoded = pickle.dumps((False, RuntimeError(f"not to be pickled: {error}: {answer[1]!r}")), 4)
    answer = (False, None)
with open(os.path.join(os.environ["MITO_RESULT_DIR"], "value.pkl"), "wb") as opened:
    opened.write(encoded)
sys.exit(0 if answer[0] else 1)
"""
BOOT: Final = f"CALLER = {sys.version_info[:2]}{_PROGRAM}"


def encode_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bytes:
    """Raises ConfigError when the function cannot be sent."""
    call = (function, tuple(args), dict(kwargs))
    try:
        dumped: bytes = (cloudpickle or pickle).dumps(call, protocol=4)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        hint = "" if cloudpickle else " (the package cloudpickle can send local functions)"
        raise ConfigError(f"{function!r} cannot be sent to a host: {error}{hint}") from error
    if cloudpickle is None and getattr(function, "__module__", "") == "__main__":
        raise ConfigError(
            f"{function!r} lives in __main__: sending it needs the package cloudpickle"
        )
    return dumped


def needs_tools(call: bytes) -> bool:
    """Whether a host can only read it with cloudpickle."""
    return b"cloudpickle" in call


def tools() -> bytes:
    """cloudpickle as it is here, for hosts that have none or another: a zip to import from."""
    if cloudpickle is None or cloudpickle.__file__ is None:
        raise ConfigError("the package cloudpickle is not installed")
    folder = Path(cloudpickle.__file__).parent
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.glob("*.py")):
            archive.write(file, f"{folder.name}/{file.name}")
    return packed.getvalue()


def as_text(call: bytes) -> str:
    return base64.b64encode(call).decode()


def decode_value(archive: bytes) -> Any:
    """The value a task left in its `result` archive, or the exception, raised."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as opened:
            member = opened.extractfile(VALUE_MEMBER)
            if member is None:
                raise MitosisError("the result archive holds no value")
            is_value, value = pickle.loads(member.read())  # noqa: S301 - written by our own call
    except (tarfile.TarError, KeyError) as error:
        raise MitosisError("the result archive holds no value") from error
    if is_value:
        return value
    raise value
