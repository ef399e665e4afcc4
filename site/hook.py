"""Tells mkdocs where the pages are: those of docs/ in docs/, as in the repository, and beside it those of its root.

A relative link between two pages therefore leads to the same page on the site and on a code host.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_TEXT = re.compile(r"<!-- drawn: (?P<name>[\w-]+) -->\n.*?<!-- end -->\n", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Move the pages of docs/ into the folder of that name, and add those of the root."""
    root, docs = Path(str(config.config_file_path)).parent, Path(config.docs_dir)
    moved = {file.src_uri for file in files if file.src_dir == config.docs_dir}
    below = [f"{docs.name}/{uri}" for uri in sorted(moved)]
    others = [file for file in files if file.src_uri not in moved]
    beside = [path.name for path in sorted(root.glob("*.md"))]
    found = [File(uri, str(root), config.site_dir, config.use_directory_urls) for uri in (*beside, *below)]
    return Files([*found, *others])


def on_page_markdown(markdown: str, page: Page, **_given: object) -> str:
    """Show the picture itself where a page has it as text, for a package index that shows no files of a repository."""
    if page.file.src_uri != "README.md":
        return markdown
    return _TEXT.sub(r"![One rebalance, with both loops](docs/pictures/\g<name>.svg)\n", markdown)
