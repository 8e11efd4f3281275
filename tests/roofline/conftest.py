"""A browser, pages opened in it, and a made-up report: for the tests of report.html."""

import importlib.util
from pathlib import Path

import pytest


def load(path):
    """A helper file beside the tests as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def browser_helper():
    return load(Path(__file__).parents[1] / "browser.py")


@pytest.fixture(scope="session")
def made():
    return load(Path(__file__).with_name("made_report.py"))


@pytest.fixture(scope="module")
def browser(browser_helper):
    with browser_helper.open_browser() as found:
        yield found


@pytest.fixture
def visit(browser_helper, browser):
    """Open pages; afterwards none of them may have complained, or asked for anything but itself."""
    visit = browser_helper.Visit(browser)
    yield visit
    visit.close()
    assert visit.errors == []
    assert visit.asked == []


@pytest.fixture(scope="module")
def data(made):
    return made.made_report(layers=6, steps=4)


@pytest.fixture(scope="module")
def write(tmp_path_factory):
    from kernelroof.roofline.html import page

    def written(data, name="report.html"):
        path = tmp_path_factory.mktemp("page") / name
        path.write_text(page("report", data, title=data["title"]), encoding="utf-8")
        return path

    return written


@pytest.fixture(scope="module")
def report(data, write):
    return write(data)
