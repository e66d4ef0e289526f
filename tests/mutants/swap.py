"""Put a changed text in the place of a shipped one while a block runs; nothing on disk changes.

SQL is changed for whoever has loaded it or will; Python by giving a module's own functions the
code of the changed ones, so whoever imported them gets it, too.
"""

import importlib
import inspect
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType, ModuleType

from core.pg import load_sql
from tasks.statements import forget_texts

Edit = tuple[str, str]  # what stands there, what stands there instead


def edited(text: str, edits: Sequence[Edit], name: str) -> str:
    """Each edit fits exactly once; one that does not fit any more fails loudly."""
    for old, new in edits:
        assert text.count(old) == 1, f"{name}: {old!r} stands there {text.count(old)} times"
        text = text.replace(old, new)
    return text


@contextmanager
def sql_in_place(package: str, file: str, edits: Sequence[Edit], name: str) -> Iterator[None]:
    original = load_sql(package, file)
    changed = edited(original, edits, name)

    def load(asked_package: str, asked_file: str) -> str:
        is_ours = (asked_package, asked_file) == (package, file)
        return changed if is_ours else load_sql(asked_package, asked_file)

    swaps = [
        (module, attribute, load if value is load_sql else changed)
        for module in list(sys.modules.values())
        for attribute, value in list(getattr(module, "__dict__", {}).items())
        if value is load_sql or (isinstance(value, str) and value == original)
    ]
    kept = [(module, attribute, getattr(module, attribute)) for module, attribute, _ in swaps]
    _put(swaps)
    try:
        yield
    finally:
        _put(kept)


@contextmanager
def code_in_place(module_name: str, edits: Sequence[Edit], name: str) -> Iterator[None]:
    module = importlib.import_module(module_name)
    changed = _functions_of(edited(inspect.getsource(module), edits, name), module)
    present = _functions(module)
    kept = {function_name: function.__code__ for function_name, function in present.items()}
    try:
        for function_name, function in present.items():
            function.__code__ = changed[function_name].__code__
        yield
    finally:
        for function_name, function in present.items():
            function.__code__ = kept[function_name]


def _put(values: Sequence[tuple[ModuleType, str, object]]) -> None:
    for module, attribute, value in values:
        # The loader itself stays where it lives, so that the others can be told from it.
        if (module.__name__, attribute) != ("core.pg", "load_sql") and module.__name__ != __name__:
            setattr(module, attribute, value)
    forget_texts()


def _functions(module: ModuleType) -> dict[str, FunctionType]:
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__ == module.__name__
    }


def _functions_of(source: str, module: ModuleType) -> dict[str, FunctionType]:
    """Never registered as a module: nothing else must find it."""
    scratch = ModuleType(module.__name__)
    exec(compile(source, str(module.__file__), "exec"), scratch.__dict__)
    return _functions(scratch)
