"""The pictures are as the code draws them now, are shown on a page with words for it, and can be read in the dark."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from scripts.pictures import gallery, timeline
from tests.support.code_blocks import PAGES

OUT_OF_DATE = f"out of date: run `{gallery.COMMAND}` and commit what it has drawn"


@pytest.mark.parametrize("name", gallery.PICTURES)
def test_the_picture_is_up_to_date(name: str) -> None:
    assert (gallery.FOLDER / f"{name}.svg").read_text(encoding="utf-8") == gallery.PICTURES[name](), OUT_OF_DATE


def test_the_picture_of_the_readme_is_up_to_date() -> None:
    written = gallery.README.read_text(encoding="utf-8")
    assert timeline.in_text() in written, OUT_OF_DATE
    assert written == gallery.renewed(written), OUT_OF_DATE


def test_each_picture_is_shown_on_a_page_with_words_for_who_does_not_see_it() -> None:
    shown = [
        (name, " ".join(words.split()))
        for page in PAGES
        for words, name in re.findall(r"!\[([^\]]*)\]\([./\w-]*?pictures/([\w-]+)\.svg\)", page.read_text("utf-8"))
    ]
    assert {name for name, _ in shown} == set(gallery.PICTURES) == {path.stem for path in gallery.FOLDER.iterdir()}
    assert [name for name, words in shown if len(words) < 40] == []


@pytest.mark.parametrize("name", gallery.PICTURES)
def test_each_colour_of_the_picture_has_its_counterpart_in_the_dark(name: str) -> None:
    text = (gallery.FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    light, _, dark = text.partition("@media (prefers-color-scheme: dark)")
    coloured = set(re.findall(r"^(\S+) \{[^}]*#", light, re.MULTILINE))
    assert coloured == set(re.findall(r"^  (\S+) \{[^}]*#", dark, re.MULTILINE))
    used = {each for node in ET.fromstring(text).iter() for each in node.get("class", "").split()}
    assert {f".{each}" for each in used} <= set(re.findall(r"^(\.\w+) \{", light, re.MULTILINE))


def test_the_drawn_loops_did_what_the_pages_say() -> None:
    hand, ours = timeline.run_by_hand(), timeline.run_of_eos_client()
    assert (sorted(hand.doubled), sorted(hand.lost)) == (["22", "23"], ["58", "59", "60"])
    assert not ours.doubled | ours.lost
    assert [each.is_committed for each in ours.wrote].count(False) == 1
    tutorial = timeline.run_of_tutorial()
    assert not tutorial.doubled | tutorial.lost
