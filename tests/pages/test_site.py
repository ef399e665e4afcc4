"""Every page has its place on the site that `make docs` builds, which itself checks every link and anchor."""

import re

from tests.support.code_blocks import PAGES, REPOSITORY

CONFIGURATION = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
PYPROJECT = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
NOT_FOR_USERS = "docs/file-map.md"


def test_every_page_for_users_is_in_the_navigation_once():
    navigation = re.findall(r"^ +- [^#:]+: (\S+\.md)$", CONFIGURATION, re.MULTILINE)
    pages = [str(page.relative_to(REPOSITORY)) for page in PAGES]
    assert sorted([*navigation, NOT_FOR_USERS]) == sorted(pages)
    assert re.search(rf"^not_in_nav: {re.escape(NOT_FOR_USERS)} ", CONFIGURATION, re.MULTILINE)


def test_the_site_is_built_with_its_own_extra_and_neither_spark_nor_the_tests_tools():
    recipe = MAKEFILE.partition("$(DOCS_READY):")[2].partition("\n\n")[0]
    assert set(re.findall(r"'\.\[(\w+)\]'", recipe)) == {"docs"}
    assert re.search(r"^docs: \$\(DOCS_READY\)", MAKEFILE, re.MULTILINE)
    (extra,) = re.findall(r"^docs = \[(.*)\]$", PYPROJECT, re.MULTILINE)
    assert set(re.findall(r'"([\w-]+)', extra)) == {"mkdocs", "mkdocs-material", "mkdocstrings", "ruff"}
    assert "docs" not in re.findall(r'"eos-client\[([\w,]+)\]"', PYPROJECT)[0].split(",")
