"""The files of the console: from a list that was made at the start."""

from __future__ import annotations

from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from kraft.http.console.static import answer, manifest


def folder(tmp_path: Path) -> Path:
    (tmp_path / "pages").mkdir()
    (tmp_path / "index.html").write_text("<script src=\"/static/app.js\"></script><a href='/static/nope.js'>")
    (tmp_path / "app.js").write_text("import './pages/a.js'")
    (tmp_path / "pages" / "a.js").write_text("1")
    (tmp_path / "secret.pem").write_text("no")
    (tmp_path / "pages" / "__init__.py").write_text("no")
    return tmp_path


def test_only_files_of_known_types_are_served(tmp_path: Path) -> None:
    files = manifest(folder(tmp_path))
    assert sorted(files) == ["app.js", "index.html", "pages/a.js"]
    assert files["app.js"].content_type == "text/javascript; charset=utf-8"


def test_the_page_names_files_with_their_hashes(tmp_path: Path) -> None:
    files = manifest(folder(tmp_path))
    page = files["index.html"].content.decode()
    assert f'src="/static/app.js?v={files["app.js"].etag}"' in page
    assert "'/static/nope.js'" in page


def test_a_folder_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert manifest(tmp_path / "nowhere") == {}


def test_what_a_browser_may_keep(tmp_path: Path) -> None:
    file = manifest(folder(tmp_path))["app.js"]
    plain = answer(make_mocked_request("GET", "/static/app.js"), file)
    assert (plain.status, plain.headers["Cache-Control"]) == (200, "no-cache")
    versioned = answer(make_mocked_request("GET", f"/static/app.js?v={file.etag}"), file)
    assert "immutable" in versioned.headers["Cache-Control"]
    stale = answer(make_mocked_request("GET", "/static/app.js?v=other"), file)
    assert stale.headers["Cache-Control"] == "no-cache"
    known: web.Response = answer(
        make_mocked_request("GET", "/static/app.js", headers={"If-None-Match": f'"{file.etag}"'}), file
    )
    assert (known.status, known.body) == (304, None)
