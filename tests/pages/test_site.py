"""Every page has its place on the site that `make docs` builds, which itself checks every link and anchor."""

import re

from tests.support.code_blocks import PAGES, REPOSITORY

CONFIGURATION = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
SITE = REPOSITORY / "site"


def test_every_page_is_in_the_navigation_once():
    navigation = re.findall(r"^ +- [^#:]+: (\S+\.md)$", CONFIGURATION, re.MULTILINE)
    pages = [str(page.relative_to(REPOSITORY)) for page in PAGES]
    assert sorted(navigation) == sorted(pages)


def test_the_site_has_a_link_to_each_page_and_to_the_folder_of_the_others():
    beside = [page.name for page in PAGES if page.parent == REPOSITORY]
    assert sorted(path.name for path in SITE.iterdir()) == sorted([*beside, "docs"])
    assert all(path.resolve() == REPOSITORY / path.name for path in SITE.iterdir())
