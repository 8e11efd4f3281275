"""One HTML file from a template: style, script, chart library and data are all inside, so it opens offline.

The page forbids itself any network by its own Content-Security-Policy. Data is one JSON object in a script
element that no browser runs; scripts read it from there. jinja2 is imported when something is rendered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WEB = Path(__file__).parent / "web"
"""Templates, styles, scripts and the chart library (Apache ECharts, licence beside it)."""


def page(name: str, data: Mapping[str, Any], **texts: Any) -> str:
    """The page `web/NAME.html.j2` with its scripts, the shared style and charts, and `data` for its scripts.

    Scripts are `charts.js`, then all `NAME_*.js` and last `NAME.js`, as one script.

    Args:
        name: "report" or "diff".
        data: what the script draws: strings, finite numbers, None, lists and objects of these.
        texts: what the template itself writes; escaped, as is what it writes of `data`.

    Raises:
        ValueError: the data holds NaN or infinity: those are missing figures and must be None.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(WEB), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    scripts = [WEB / "charts.js", *sorted(WEB.glob(f"{name}_*.js")), WEB / f"{name}.js"]
    assets = {
        "style": "".join(
            (WEB / f).read_text(encoding="utf-8") for f in ("page.css", f"{name}.css") if (WEB / f).exists()
        ),
        "library": (WEB / "echarts.min.js").read_text(encoding="utf-8"),
        "script": "\n".join(path.read_text(encoding="utf-8") for path in scripts),
        "data": script_json(data),
    }
    return environment.get_template(f"{name}.html.j2").render(assets=assets, data=data, sentence=sentence, **texts)


def sentence(words: str) -> str:
    """Words as a sentence; a command stays as it is typed."""
    begun = words if words.startswith("kernelroof") else words[:1].upper() + words[1:]
    return begun if begun.endswith((".", "!", "?")) else f"{begun}."


def script_json(data: Any) -> str:
    """JSON that may stand in a script element: no text in it can end the element or open a comment."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
