"""What `make docs` adds to mkdocs: pages of the root, generated references, diagrams, the nav."""

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

import diagrams
import reference

ROOT = Path(__file__).resolve().parents[2]
# Pages that live at the root for the forges' sake, shown under project/.
ROOT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
GENERATED = {
    "<!-- generated at build: http-api -->": reference.http_api,
    "<!-- generated at build: protocol -->": reference.protocol,
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Leaves out what does not exist; adds what nobody listed."""
    docs = Path(config.docs_dir)
    config.nav = _existing(config.nav or [], docs)
    listed = set(_files(config.nav))
    others = [page for page in _pages(docs) if page not in listed]
    more = [page for page in others if not page.startswith("adr/")]
    if more:
        config.nav.append({"More": more})
    config.nav.append({"Project": [f"project/{name}" for name in ROOT_PAGES]})
    return config


def _pages(docs: Path) -> list[str]:
    return sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md"))


def _existing(nav: list[Any], docs: Path) -> list[Any]:
    kept: list[Any] = []
    for entry in nav:
        title, target = next(iter(entry.items())) if isinstance(entry, dict) else (None, entry)
        if isinstance(target, list):
            inner = _existing(target, docs)
            if inner:
                kept.append({title: inner})
        elif (docs / target).exists():
            kept.append(entry)
    return kept


def _files(nav: list[Any]) -> list[str]:
    found: list[str] = []
    for entry in nav:
        target = next(iter(entry.values())) if isinstance(entry, dict) else entry
        found += _files(target) if isinstance(target, list) else [target]
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name in ROOT_PAGES:
        text = (ROOT / name).read_text()
        text = re.sub(r"\]\(docs/", "](../", text)
        text = re.sub(r"\]\(\.\./adr\)", "](../adr/README.md)", text)
        files.append(File.generated(config, f"project/{name}", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    depth = page.file.src_uri.count("/")
    for name in ROOT_PAGES:
        markdown = markdown.replace(
            f"]({'../' * (depth + 1)}{name}", f"]({'../' * depth}project/{name}"
        )
    for marker, generate in GENERATED.items():
        if marker in markdown:
            markdown = markdown.replace(marker, generate())
    return diagrams.with_drawings(markdown)
