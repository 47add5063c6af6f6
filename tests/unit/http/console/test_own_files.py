"""The console's files as they are shipped: nothing of theirs can run what a cluster says, nor ask another host."""

from __future__ import annotations

import hashlib
import json
import re
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any

import pytest

from kraft.http.console.static import console_files, manifest

VENDOR = "vendor/"
MARKUP = re.compile(
    r"unsafeHTML|unsafeSVG|unsafeStatic|innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc"
    r"|createContextualFragment|DOMParser|setHTML|\beval\(|new Function|javascript:"
)
"""Every way by which a text becomes markup or code."""
ELSEWHERE = re.compile(r"(?:https?:|wss?:)?//[a-z0-9.-]+\.[a-z]{2,}", re.IGNORECASE)
IMPORT = re.compile(r"""(?:from\s+|import\s+|import\()["'](\.{1,2}/[^"']+)["']""")


def text_of(name: str) -> str:
    return console_files()[name].content.decode()


def own(*endings: str) -> list[str]:
    names = [one for one in console_files() if one.endswith(endings) and not one.startswith(VENDOR)]
    assert names
    return names


def packages() -> list[dict[str, Any]]:
    return list(json.loads(text_of("vendor/manifest.json"))["packages"])


def test_vendored_files_are_those_that_were_published() -> None:
    named = {"manifest.json"}
    for package in packages():
        assert re.fullmatch(r"\d+\.\d+\.\d+", package["version"])
        licence = text_of(VENDOR + package["license_file"])
        assert package["license"].split("-")[0] in licence or "Permission is hereby granted" in licence
        named.add(package["license_file"])
        for file in package["files"]:
            content = (files("kraft.http") / "static" / "vendor" / file["file"]).read_bytes()
            assert hashlib.sha256(content).hexdigest() == file["sha256"], file["file"]
            named.add(file["file"])
    assert named == {name.removeprefix(VENDOR) for name in console_files() if name.startswith(VENDOR)}


@pytest.mark.parametrize("name", own(".js", ".html"))
def test_texts_never_become_markup(name: str) -> None:
    assert MARKUP.findall(text_of(name)) == []


@pytest.mark.parametrize("name", own(".js", ".html", ".css"))
def test_nothing_is_asked_of_another_host(name: str) -> None:
    assert ELSEWHERE.findall(text_of(name)) == []


def test_the_patterns_find_what_they_are_for() -> None:
    assert MARKUP.search("element.innerHTML = name")
    assert MARKUP.search("html`${unsafeHTML(value)}`")
    assert ELSEWHERE.search('import "https://cdn.example.com/lit.js"')


def test_the_page_has_no_inline_script_or_style() -> None:
    page = text_of("index.html")
    assert all("src=" in tag for tag in re.findall(r"<script\b[^>]*>", page))
    assert "<style" not in page
    assert re.findall(r"\s(?:style|on[a-z]+)=", page) == []


@pytest.mark.parametrize("name", own(".js"))
def test_templates_set_no_style(name: str) -> None:
    """The policy forbids it, so that it would be lost."""
    assert re.findall(r"<[a-z]+[^>`]*\sstyle=", text_of(name)) == []


@pytest.mark.parametrize("name", own(".js"))
def test_modules_import_what_is_there(name: str) -> None:
    folder = PurePosixPath("/", name).parent
    for imported in IMPORT.findall(text_of(name)):
        if "${" not in imported:
            parts: list[str] = []
            for part in (folder / imported).parts[1:]:
                if part == "..":
                    parts.pop()
                elif part != ".":
                    parts.append(part)
            assert "/".join(parts) in console_files(), imported


def test_each_route_has_its_page() -> None:
    pages = re.findall(r'^  \[/.*/, "(\w+)", \[', text_of("router.js"), re.MULTILINE)
    assert len(set(pages)) >= 10
    for page in pages:
        assert "export default function" in text_of(f"pages/{page}.js"), page


def test_the_page_names_only_files_that_are_there() -> None:
    raw = manifest(files("kraft.http") / "static")["index.html"].content.decode()
    named = re.findall(r'"/static/([^"?]+)(\?v=[0-9a-f]+)?"', raw)
    assert len(named) >= 5
    assert [name for name, version in named if not version] == []
