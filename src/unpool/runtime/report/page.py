"""A report as one HTML page that needs no other file and no network."""

import base64
import hashlib

from unpool.runtime.report import drawing, sections
from unpool.runtime.report.contents import Contents
from unpool.runtime.report.markup import Markup, element, joined
from unpool.runtime.report.summary import opsets, summary


def page(report: Contents) -> str:
    """The page.

    Its content security policy lets nothing be loaded, and runs no script but its own.
    """
    parts = _parts(report)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(drawing.script())),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{report.model}: unpool report"),
        element("style", drawing.asset("page.css"), drawing.style()),
    )
    main = element("main", *(_section(*part) for part in parts), id="content")
    text = element(
        "body",
        element("a", "Skip to the content", href="#content", class_="skip"),
        _header(report, [(name, title) for name, title, _ in parts]),
        main,
        element("footer", f"Made by unpool on {report.made:%Y-%m-%d %H:%M %Z}. {report.machine}."),
        element("script", drawing.script()),
    )
    return f"<!doctype html>\n{element('html', head, text, lang='en')}\n"


def _parts(report: Contents) -> list[tuple[str, str, Markup]]:
    """Name, title and content of every section."""
    return [
        ("steps", "Plan and time", sections.steps(report)),
        ("accuracy", "Accuracy", sections.accuracy(report.accuracy)),
        ("check", "Check", sections.findings(report.findings)),
        ("memory", "Memory", sections.memory(report.memory)),
        ("maps", "Feature maps", sections.maps(report.maps, report.left_out)),
        ("windows", "Window arithmetic", sections.windows(report)),
    ]


def _section(name: str, title: str, content: Markup) -> Markup:
    return element(
        "section", element("h2", title, id=f"{name}-title"), content, id=name, aria_labelledby=f"{name}-title"
    )


def _header(report: Contents, parts: list[tuple[str, str]]) -> Markup:
    inputs = ", ".join(f"{name}: {kind}" for name, kind in report.inputs.items())
    source = "random numbers" if report.is_random else "given"
    links = [element("li", element("a", title, href=f"#{name}")) for name, title in parts]
    return element(
        "header",
        element("p", "unpool report", class_="kind"),
        element("h1", report.model),
        element("p", f"Opset {opsets(report)}. Inputs ({source}): {inputs}."),
        element("dl", *map(sections.fact, summary(report)), class_="facts"),
        element("nav", element("ul", *links), aria_label="Sections"),
    )


def _policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return joined(
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; ",
        "base-uri 'none'; form-action 'none'",
    ).replace("&#x27;", "'")
