"""The pages of the site."""

from __future__ import annotations

from collections.abc import Sequence

from memory.benchmarking.league.model import League, System
from memory.benchmarking.league.page import league_page
from memory.benchmarking.league.pictures import names_of
from memory.benchmarking.league.table_html import figure_parts, system_anchor
from memory.benchmarking.report.document import document
from memory.benchmarking.report.markup import Child, Markup, element, with_code
from memory.benchmarking.report.parts import facts
from memory.benchmarking.site.build import Bundle, Group, Site, slug

_ASSETS = ("../league/league.css",)


def pages_of(site: Site) -> dict[str, str]:
    """Return the content of every page by its path."""
    pages = {"index.html": _index(site)}
    for group in site.groups:
        links = [("../index.html", "all leagues")]
        title = f"Which memory should I use? {group.title}"
        pages[f"leagues/{group.key}.html"] = league_page(group.league, title=title, links=links)
    for name in _systems(site):
        pages[f"systems/{slug(name)}.html"] = _system(name, site.groups)
    for bundle in site.bundles:
        pages[f"bundles/{bundle.name}.html"] = _bundle(bundle, site.groups)
    return pages


def _systems(site: Site) -> list[str]:
    return sorted({name for group in site.groups for name in names_of(group.league.systems)})


# -- the index --------------------------------------------------------------------------------


def _index(site: Site) -> str:
    leagues = [
        element(
            "tr",
            element("th", element("a", group.title, href=f"leagues/{group.key}.html"), scope="row"),
            element("td", str(len(group.league.systems)), class_="n"),
            element("td", group.league.runs[-1].started_at[:10]),
            element("td", ", ".join(dict.fromkeys(bundle.name for bundle, _ in group.sources))),
        )
        for group in site.groups
    ]
    systems = [
        element("li", element("a", name, href=f"systems/{slug(name)}.html")) for name in _systems(site)
    ]
    bundles = [
        element(
            "tr",
            element("th", element("a", bundle.name, href=f"bundles/{bundle.name}.html"), scope="row"),
            element("td", _mark(bundle)),
            element("td", _contents(bundle)),
            element("td", bundle.found.signed_by or "not signed"),
        )
        for bundle in site.bundles
    ]
    body: list[Child] = [
        element("h1", "Memory systems, measured"),
        element(
            "p",
            "Each league is one kind of machine: figures of different machines, versions or profiles "
            "are never in one table. Every bundle was verified: its bytes, and every figure from its "
            "raw samples.",
            class_="lede",
        ),
        element("h2", "Leagues", id="leagues"),
        _table(("Machine and profile", "Systems", "Measured", "Bundles"), leagues)
        if leagues
        else element("p", "No bundle has a run of `membench league`.".replace("`", "")),
        element("h2", "Systems", id="systems") if systems else None,
        element("ul", systems) if systems else None,
        element("h2", "Bundles", id="bundles"),
        _table(("Bundle", "Verified", "Runs", "Signed by"), bundles),
        element("p", with_code("Check one yourself: `membench results verify FILE`."), class_="soft"),
    ]
    links = [("#leagues", "leagues"), ("#systems", "systems"), ("#bundles", "bundles")]
    return document("Memory systems, measured", body, links, assets=_ASSETS)


def _mark(bundle: Bundle) -> Markup:
    if bundle.found.is_right:
        return element("span", "verified", class_="mark good")
    return element("span", "refused", class_="mark bad")


def _contents(bundle: Bundle) -> str:
    if not bundle.runs:
        return str(bundle.found.problems[0]) if bundle.found.problems else ""
    parts = [f"{run.suite or 'run'} {run.id}, {len(run.targets)} systems" for _, run in bundle.runs]
    return "; ".join(parts)


def _table(heads: Sequence[str], rows: Sequence[Markup]) -> Markup:
    head = element("tr", [element("th", text, scope="col") for text in heads])
    return element(
        "div",
        element("table", element("thead", head), element("tbody", rows)),
        class_="wide", tabindex="0", role="region", aria_label=heads[0],
    )  # fmt: skip


# -- a system ---------------------------------------------------------------------------------


def _system(name: str, groups: Sequence[Group]) -> str:
    parts: list[Child] = [element("h1", name)]
    for group in groups:
        league = group.league
        for system, own in zip(league.systems, names_of(league.systems), strict=True):
            if own == name:
                address = f"../leagues/{group.key}.html#{system_anchor(system)}"
                parts += [
                    element("h2", element("a", group.title, href=address)),
                    element("p", f"{system.version}; writes survive: {system.durability}", class_="soft"),
                    [element("p", "Failed: ", failure, class_="bad") for failure in system.failures],
                    _figures(league, system),
                ]
    return document(name, parts, [("../index.html", "all leagues")], assets=_ASSETS)


def _figures(league: League, system: System) -> Markup:
    rows = []
    for axis in league.axes:
        cell = league.cell(system.target, axis.key)
        shown: Child = (
            element("span", f"n/a: {cell.reason}", class_="soft")
            if cell.figure is None
            else figure_parts(cell, axis)
        )
        rows.append(
            element(
                "tr",
                element("th", axis.title, scope="row"),
                element("td", shown),
                element("td", cell.against_best),
                class_="system",
            )
        )
    return _table(("Axis", "Figure", "Against the best"), rows)


# -- a bundle ---------------------------------------------------------------------------------


def _bundle(bundle: Bundle, groups: Sequence[Group]) -> str:
    found = bundle.found
    body: list[Child] = [element("h1", bundle.name), element("p", _mark(bundle))]
    body += [element("p", str(problem), class_="bad") for problem in found.problems]
    if found.is_right and found.manifest is not None:
        counts = found.counts
        address = f"{bundle.name}.zip"
        body += [
            element("p", element("a", "Download", href=address, download=address, class_="button")),
            facts(
                {
                    "signed by": found.signed_by or "not signed",
                    "files": str(found.files),
                    "computed again": f"{counts.from_rounds:,} figures over rounds, "
                    f"{counts.from_samples:,} from raw samples, {counts.from_answers:,} from answers",
                    "made with": f"membench {found.manifest.membench}",
                    "left out": ", ".join(found.manifest.left_out),
                    "data sets": "; ".join(f"{k}: {v}" for k, v in found.manifest.data_sets.items()),
                }
            ),
        ]
        for run in found.manifest.runs:
            body += [
                element("h2", f"{run.suite or 'run'} {run.id}"),
                facts(
                    {
                        "command": run.command,
                        "machine": run.machine,
                        "profile": run.profile,
                        "status": run.status,
                        "started": run.started_at,
                        "targets": ", ".join(run.targets),
                        "fingerprint": run.fingerprint,
                    }
                ),
            ]
    links = [("../index.html", "all leagues")]
    for group in groups:
        if any(each is bundle for each, _ in group.sources):
            links.append((f"../leagues/{group.key}.html", f"league: {group.title}"))
    return document(bundle.name, body, links, assets=_ASSETS)
