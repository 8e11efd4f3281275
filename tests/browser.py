"""A browser for tests of pages: one a module, with every page closed to any network."""

import importlib.util
import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def load(path):
    """A helper of the tests by its path; tests are no package."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _absent(why):
    if os.environ.get("KERNELROOF_REQUIRE_BROWSER") == "1":
        pytest.fail(why)
    pytest.skip(why)


@contextmanager
def open_browser():
    """Chromium: $KERNELROOF_CHROMIUM or one on PATH. Skips without, or fails with KERNELROOF_REQUIRE_BROWSER=1."""
    path = os.environ.get("KERNELROOF_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        _absent(f"none of {', '.join(NAMES)} is on PATH")
    if importlib.util.find_spec("playwright") is None:
        _absent("playwright is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """Opens files in pages that tell what went wrong: `errors` (console and scripts), `asked` (the network)."""

    def __init__(self, browser):
        self.browser = browser
        self.contexts = []
        self.errors = []
        self.asked = []

    def __call__(self, path, *, part="", width=1400, height=1000, scheme="light", media=None):
        context = self.browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: self.errors.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.route("**/*", lambda route: self._route(route, path))
        if media:
            page.emulate_media(media=media)
        page.goto(f"file://{path}{part}")
        assert page.evaluate("window.kernelroof !== undefined"), self.errors
        return page

    def _route(self, route, path):
        if route.request.url.partition("#")[0] == f"file://{path}":
            route.continue_()
        else:
            self.asked.append(route.request.url)
            route.abort()

    def close(self):
        for context in self.contexts:
            context.close()
