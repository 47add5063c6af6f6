"""The console in a browser, on a cluster that works, with a broker that does not and records that nobody should trust.

Chromium is needed: where it is missing these tests fail.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import axe_playwright_python
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import NewTopic
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright

from tests.support.node_processes import PATIENCE, NodeProcesses, metadata, until
from tests.support.raw_client import RawConnection
from tests.support.real_clients import QUIET

PARTITIONS = 2000
TOPICS = 20
WAIT_MS = 60_000
expect.set_options(timeout=WAIT_MS)
AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
SCRIPT = b"<script>document.title = 'owned'</script>"
HTML = b"<!doctype html><h1>owned</h1><img src=x onerror=\"document.title = 'owned'\">"
NO_TEXT = b"caf\xe9 \xff\xfe"
MEGABYTE = b"<b>" + b"\x00\x01" * (512 * 1024 - 2)
ODD_GROUP = "<img src=x onerror=alert(1)>"
NESTED = """import("/static/pages/fields.js").then(({shown}) => {
    const text = "[".repeat(2e5) + "]".repeat(2e5);
    const {form, cut} = shown({text, size_bytes: 4e5, shown_bytes: 4e5}, "auto");
    return [form, cut];
})"""
SETTINGS = PATIENCE | {"metrics.groups.interval.ms": "1000", "min.insync.replicas": "2"}


class World:
    """Three nodes, the last of them dead, and clients that write and read all the time."""

    def __init__(self, cluster: NodeProcesses) -> None:
        self.cluster = cluster
        self.orders = cluster.create_topic("orders", partitions=6)
        self.odd = cluster.create_topic("odd")
        self._make_many()
        self.dead = cluster.node_ids[-1]
        self.ended = threading.Event()
        self._traffic = threading.Thread(target=self._work)

    def _make_many(self) -> None:
        wanted = [NewTopic(f"many-{number:02}", PARTITIONS // TOPICS, 1) for number in range(TOPICS)]
        for answer in self.cluster.admin.create_topics(wanted, request_timeout=60).values():
            # A controller that was replaced meanwhile may have made it all the same: what counts is what there is.
            with contextlib.suppress(KafkaException):
                answer.result(60)
        until(lambda: self._many() == TOPICS, f"{PARTITIONS} partitions are made")

    def _many(self) -> int:
        return sum(name.startswith("many-") for name in metadata(self.cluster.admin).topics)

    def start(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self.cluster.bootstrap, "message.max.bytes": 2_000_000, **QUIET}
        )
        for value in (SCRIPT, HTML, NO_TEXT, MEGABYTE):
            producer.produce(self.odd, value=value, key=SCRIPT)
        assert producer.flush(60) == 0
        self._traffic.start()
        self.cluster.local.kill(self.dead)
        # Messages are asked for once, of whom the node that shows them takes for the leader.
        until(self._is_led_by_the_living, "the dead broker leads nothing that is read")

    def _is_led_by_the_living(self) -> bool:
        with RawConnection(self.cluster.address(1)) as connection:
            places = [(self.odd, 0), *((self.orders, number) for number in range(6))]
            return self.dead not in {connection.leader(*place) for place in places}

    def _work(self) -> None:
        common = {"bootstrap.servers": self.cluster.bootstrap, **QUIET}
        producer = Producer({**common, "client.id": "shop"})
        readers = [
            Consumer({**common, "group.id": group, "client.id": "till", "auto.offset.reset": "earliest"})
            for group in ("billing", ODD_GROUP)
        ]
        for reader in readers:
            reader.subscribe([self.orders])
        while not self.ended.wait(0.05):
            for number in range(10):
                producer.produce(self.orders, key=str(number), value=b'{"order": %d}' % number)
            producer.poll(0)
            for reader in readers:
                reader.consume(20, 0)
        for reader in readers:
            reader.close()
        producer.purge()

    def close(self) -> None:
        self.ended.set()
        self._traffic.join()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.cluster.local.node(1).http_port}"

    def pages(self) -> dict[str, str]:
        """Each page, and what is in it once it is whole."""
        topic, group = quote(self.orders, safe=""), quote("billing", safe="")
        return {
            "overview": "main .problems, main .u-wrap canvas",
            "topics": "main table.grid tbody tr",
            f"topics/{topic}": "main table.grid tbody tr",
            f"topics/{topic}/messages": "main .row-list .row",
            "groups": "main table.grid tbody tr",
            f"groups/{group}": "main table.grid tbody tr",
            "brokers": "main table.grid tbody tr",
            "brokers/1": "main .u-wrap canvas",
            "quorum": "main table.grid tbody tr",
            "metadata": "main table.grid tbody tr",
        }


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    cluster = NodeProcesses(tmp_path_factory.mktemp("console"), settings=SETTINGS)
    try:
        made = World(cluster)
        made.start()
        try:
            yield made
        finally:
            made.close()
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium, "Chromium is missing; install it: apt-get install chromium"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"], timeout=2 * WAIT_MS
        )
        yield running
        running.close()


class Seen:
    """A tab, and whatever it complained of or asked for."""

    def __init__(self, context: BrowserContext, world: World) -> None:
        self.world = world
        self.page: Page = context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.complaints: list[str] = []
        self.hosts: set[str] = set()
        self.streams: list[Request] = []
        self.page.on("console", lambda said: self._said(said.type, said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self._said("error", f"a dialog: {dialog.message}"))
        self.page.on("request", self._asked)

    def _said(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith("data:"):
            self.hosts.add(urlsplit(request.url).netloc)
        if "/api/events" in request.url:
            self.streams.append(request)

    def show(self, hash_: str, selector: str | None = None) -> Page:
        self.page.goto(f"{self.world.address}/#/{hash_}")
        self.page.wait_for_selector(selector or self.world.pages()[hash_])
        return self.page

    def judged(self) -> None:
        assert self.complaints == []
        assert self.hosts == {urlsplit(self.world.address).netloc}


@contextlib.contextmanager
def tab(browser: Browser, world: World, theme: str = "light", width: int = 1280) -> Iterator[Seen]:
    with browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce",
    ) as context:
        yield Seen(context, world)


def violations(page: Page) -> list[str]:
    """What axe finds, with the element and why."""
    if not page.evaluate("typeof axe !== 'undefined'"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate(
        "rules => axe.run(document, {runOnly: rules}).then(({violations}) => violations)", RULES
    )
    return [
        f"{one['id']}: {node['html'][:200]} {node.get('failureSummary', '')}"
        for one in found
        for node in one["nodes"][:3]
    ]


@pytest.mark.parametrize(
    ("theme", "width", "with_axe"),
    [("light", 1280, True), ("dark", 1280, False), ("light", 768, False), ("dark", 768, True)],
)
def test_every_page(browser: Browser, world: World, theme: str, width: int, with_axe: bool) -> None:
    with tab(browser, world, theme, width) as seen:
        found = []
        for hash_ in world.pages():
            page = seen.show(hash_)
            assert page.evaluate("document.documentElement.dataset.theme") == theme
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, hash_
            if with_axe:
                found += [f"{hash_}: {one}" for one in violations(page)]
        assert found == []
        seen.judged()


def test_what_is_wrong_comes_first_and_leads_there(browser: Browser, world: World) -> None:
    with tab(browser, world) as seen:
        page = seen.show("overview", ".problems")
        first = page.locator(".problems li").first
        expect(first).to_contain_text(f"broker {world.dead}")
        expect(page.locator(".problems")).to_contain_text("partition-offline")
        above = page.evaluate(
            "document.querySelector('.problems').getBoundingClientRect().top"
            " < document.querySelector('.stats').getBoundingClientRect().top"
        )
        assert above
        first.get_by_role("link").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(f"Broker {world.dead}")
        expect(page.locator(".crumbs .pill").first).to_have_text(re.compile("fenced|silent"))
        page.wait_for_selector("text=Listeners")
        expect(page.locator("main")).to_contain_text("The broker does not answer")
        expect(page.locator("main")).not_to_contain_text("DESCRIBE_CONFIGS")
        page = seen.show("overview", ".problems")
        page.locator(".problems li", has_text="has no leader").first.get_by_role("link").click()
        expect(page.locator("main table.grid tbody tr").first).to_contain_text("none", timeout=WAIT_MS)
        seen.judged()


def test_the_node_pages_sorts_and_searches(browser: Browser, world: World) -> None:
    with tab(browser, world) as seen:
        page = seen.show("topics")
        page.get_by_role("button", name="Partitions").click()
        expect(page.locator("th[aria-sort=descending]")).to_contain_text("Partitions")
        expect(page.locator("tbody tr").first).to_contain_text("many-")
        page.get_by_role("searchbox").fill("many-07")
        expect(page.locator("tbody tr")).to_have_count(1)
        assert "q=many-07" in page.url
        page.locator("tbody a").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("many-07")
        expect(page.locator(".pager span").first).to_have_text(f"1–50 of {PARTITIONS // TOPICS}")  # noqa: RUF001
        page.get_by_role("button", name="Next page").click()
        expect(page.locator("tbody tr td").first).to_have_text("50")
        page.reload()
        expect(page.locator("tbody tr td").first).to_have_text("50")
        seen.judged()


def test_without_a_mouse(browser: Browser, world: World) -> None:
    with tab(browser, world) as seen:
        page = seen.show("overview", ".stats")
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text("Skip to the page")
        page.keyboard.press("Tab")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none"
        page.keyboard.press("g")
        page.keyboard.press("t")
        expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
        page.wait_for_selector("main input[type=search]")
        page.keyboard.press("/")
        page.keyboard.type("orders/g")  # which are letters now
        expect(page.get_by_role("searchbox")).to_have_value("orders/g")
        expect(page.get_by_text("No topic has that in its name.")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("searchbox")).not_to_be_focused()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        seen.judged()


def test_the_theme_is_kept(browser: Browser, world: World) -> None:
    with tab(browser, world, "light") as seen:
        page = seen.show("quorum")
        page.get_by_role("button", name="Use the dark theme").click()
        page.reload()
        expect(page.get_by_role("button", name="Use the light theme")).to_be_visible()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def hidden(page: Page, yes: bool) -> None:
    page.evaluate(
        "yes => { Object.defineProperty(document, 'hidden', {value: yes, configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        yes,
    )


def test_a_hidden_tab_has_no_stream(browser: Browser, world: World) -> None:
    with tab(browser, world) as seen:
        page = seen.show("overview", ".stats")
        state = page.locator("#cluster [role=status]")
        expect(state).to_have_text("live")
        ended: list[Request] = []
        page.on("requestfailed", lambda request: ended.append(request) if request in seen.streams else None)
        page.on("requestfinished", lambda request: ended.append(request) if request in seen.streams else None)
        hidden(page, True)
        expect(state).to_have_text("paused")
        before = len(seen.streams)
        hidden(page, False)
        expect(state).to_have_text("live")
        assert len(seen.streams) == before + 1
        # Chromium tells of the end of a request when it gets to it: what it tells is heard while it is asked something.
        until(
            lambda: page.evaluate("true") and len(seen.streams) - len(ended) <= 1, "there is one stream a tab"
        )


def test_changes_are_shown_as_they_happen(browser: Browser, world: World) -> None:
    with tab(browser, world) as seen:
        page = seen.show("metadata", ".log")
        expect(page.locator("#cluster [role=status]")).to_have_text("live")
        name = world.cluster.new_name("fresh")
        world.cluster.admin.create_topics([NewTopic(name, 1, 2)], request_timeout=60)[name].result(60)
        expect(page.locator(".log")).to_contain_text(f"name={name}")
        seen.judged()


def test_untrusted_bytes_are_shown_and_do_nothing(browser: Browser, world: World) -> None:
    with tab(browser, world) as seen:
        page = seen.show(f"topics/{world.odd}/messages", "main .row-list .row")
        title = page.title()
        rows = page.locator(".row-list")
        expect(rows).to_contain_text("<script>document.title")
        expect(rows).to_contain_text("<!doctype html>")
        for row in page.locator(".row-list .row").all()[:4]:
            row.click()
            expect(page.locator(".message-detail")).to_be_visible()
        seen.show("groups")
        expect(page.locator("main")).to_contain_text(ODD_GROUP)
        page.get_by_role("link", name=ODD_GROUP).first.click()
        expect(page.get_by_role("heading", level=1)).to_contain_text(ODD_GROUP)
        assert page.evaluate(NESTED) == ["json", True], "what is nested deeply does not hold the tab up"
        assert page.locator("main script, main img, main iframe").count() == 0
        assert "owned" not in page.title()
        assert title != "owned"
        seen.judged()


@pytest.mark.parametrize("path", ["/", "/api/overview", "/api/topics", "/api/events", "/static/main.js"])
@pytest.mark.parametrize("forged", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}])
def test_forged_requests_get_nothing(world: World, path: str, forged: dict[str, str]) -> None:
    connection = http.client.HTTPConnection(urlsplit(world.address).netloc, timeout=90)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=forged)
        answer = connection.getresponse()
        assert answer.status in (400, 403, 421)
        assert answer.getheader("Access-Control-Allow-Origin") is None
        assert b"cluster_id" not in answer.read()
