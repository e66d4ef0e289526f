"""How values read on pages. Times are written as machines read them; the page's script makes them
relative, so that a region's text changes only when its facts do."""

import json
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

register: Final = template.Library()

NONE: Final = "\u2013"  # a dash

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
# Which of the five colours a word gets.
_TONES: Final = {
    **dict.fromkeys(("running", "Executing", "Open", "leased", "finishing", "Connected"), "busy"),
    **dict.fromkeys(("succeeded", "Complete", "Accepted", "committed", "able", "working"), "good"),
    **dict.fromkeys(("failed", "timeout", "oom", "upstream_failed", "lost", "unable"), "bad"),
    **dict.fromkeys(("blocked", "Quarantined", "Offline", "Lost", "Refused", "full"), "bad"),
    **dict.fromkeys(("paused", "Draining", "Shutdown", "Pending", "cancelling"), "warn"),
    **dict.fromkeys(("Preparing", "Cleanup", "Lingering", "Assigned", "retried"), "warn"),
}


@register.filter
def ago(moment: datetime | None) -> SafeString | str:
    """How long ago; the script says it in words."""
    return _time(moment, "ago")


@register.filter
def elapsed(moment: datetime | None) -> SafeString | str:
    """For how long something has been going on."""
    return _time(moment, "elapsed")


@register.filter
def clock(moment: datetime | None) -> SafeString | str:
    """The moment itself, in the reader's zone once the script has run."""
    return _time(moment, "clock")


@register.filter
def span(length: timedelta | float | None) -> str:
    """`3 m 12 s`; two units are enough."""
    if length is None:
        return NONE
    seconds = length.total_seconds() if isinstance(length, timedelta) else float(length)
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < _MINUTE:
        return f"{seconds:.1f} s" if seconds < 10 else f"{round(seconds)} s"
    whole = round(seconds)
    for unit, name, below, below_name in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "m"),
        (_MINUTE, "m", 1, "s"),
    ):
        if whole >= unit:
            return f"{whole // unit} {name} {whole % unit // below} {below_name}"
    return f"{whole} s"


@register.filter
def number(value: float | None) -> str:
    """With thin spaces between thousands."""
    return NONE if value is None else f"{round(value):,}".replace(",", "\u202f")


@register.filter
def decimal(value: float | None) -> str:
    if value is None:
        return NONE
    return number(value) if abs(value) >= 100 else f"{value:.1f}"


@register.filter
def percent(value: float | None) -> str:
    return NONE if value is None else f"{round(value)} %"


@register.filter
def size(count: float | None) -> str:
    """Bytes for people."""
    if count is None:
        return NONE
    value, place = float(count), 0
    while value >= 1024 and place < len(_UNITS) - 1:
        value, place = value / 1024, place + 1
    return f"{value:.0f} {_UNITS[place]}" if place == 0 else f"{value:.1f} {_UNITS[place]}"


@register.filter
def short(uuid: UUID | str | None) -> str:
    return "" if uuid is None else str(uuid)[:8]


@register.filter
def badge(word: object) -> SafeString | str:
    """A state as a coloured word; the word alone says it, the colour only helps."""
    if word is None or word == "":
        return ""
    text = str(getattr(word, "value", word))
    return format_html(
        '<span class="badge {}">{}</span>', _TONES.get(text, "plain"), text.replace("_", " ")
    )


@register.filter
def pretty_json(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, default=str)


@register.filter
def lookup(mapping: dict[object, object], key: object) -> object:
    """A member of a mapping whose key is only known by a variable."""
    return mapping.get(key)


@register.simple_tag
def region(shown: dict[str, SafeString], name: str) -> SafeString:
    """A living part of the page: the stream replaces its content."""
    return format_html('<div data-region="{}">{}</div>', name, shown.get(name, ""))


@register.simple_tag
def bar(succeeded: int, failed: int, cancelled: int, total: int) -> SafeString:
    """Progress as a drawing; the numbers stand beside it. Drawn, because style is refused."""
    whole = max(total, 1)
    widths = [round(1000 * count / whole, 1) for count in (succeeded, failed, cancelled)]
    title = f"{succeeded} succeeded, {failed} failed, {cancelled} cancelled of {total}"
    return format_html(
        '<svg class="bar" viewBox="0 0 1000 10" preserveAspectRatio="none" role="img">'
        "<title>{}</title>"
        '<rect class="good" x="0" y="0" width="{}" height="10"/>'
        '<rect class="bad" x="{}" y="0" width="{}" height="10"/>'
        '<rect class="plain" x="{}" y="0" width="{}" height="10"/></svg>',
        title,
        widths[0],
        widths[0],
        widths[1],
        widths[0] + widths[1],
        widths[2],
    )


@register.simple_tag
def gauge(value: float | None, label: str) -> SafeString:
    """A percentage as a small drawing with its number."""
    if value is None:
        return format_html('<span class="quiet">{}</span>', NONE)
    tone = "bad" if value >= 95 else "warn" if value >= 80 else "busy"
    return format_html(
        '<span class="gauge"><svg viewBox="0 0 100 10" preserveAspectRatio="none" role="img">'
        '<title>{} {} %</title><rect class="{}" x="0" y="0" width="{}" height="10"/></svg>'
        "{}&nbsp;%</span>",
        label,
        round(value),
        tone,
        round(min(max(value, 0), 100), 1),
        round(value),
    )


def _time(moment: datetime | None, kind: str) -> SafeString | str:
    if moment is None:
        return NONE
    text = moment.strftime("%Y-%m-%d %H:%M:%S")
    return format_html(
        '<time datetime="{}" data-time="{}" title="{} UTC">{}</time>',
        moment.isoformat(),
        kind,
        text,
        text,
    )
