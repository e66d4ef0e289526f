"""What can be watched: a topic names it, a panel says how it is read, how often, and when again.

A panel's `build` is used for the first answer of a page and for its stream alike, so both show the
same. HTML is rendered by Django's templates, which escape; `data` feeds charts.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from console.viewer import EVERYTHING, Viewer


@dataclass(frozen=True, slots=True)
class Topic:
    """`target` is a uuid or a query string; equal topics are read once for all who watch."""

    kind: str
    target: str = ""
    viewer: Viewer = EVERYTHING


@dataclass(frozen=True, slots=True)
class Shown:
    """Regions of a page by name, and numbers for its charts."""

    html: Mapping[str, SafeString] = field(default_factory=dict)
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Panel:
    """`stamps` tells which of many targets have changed; without it every look builds anew."""

    build: Callable[[Topic], Shown]
    every_s: float
    stamps: Callable[[Collection[str]], dict[str, str]] | None = None


def part(name: str, context: Mapping[str, object]) -> SafeString:
    """One region, from `templates/console/parts`."""
    return render_to_string(f"console/parts/{name}.html", dict(context))
