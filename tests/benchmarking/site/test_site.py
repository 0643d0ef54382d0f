"""The site: only verified bundles, no table that mixes machines, links that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from browser import Browser, scrolls_sideways, violations
from league_builders import league_run
from membench import membench

from memory.benchmarking.bundles.write import make_bundle
from memory.benchmarking.model.aggregate import params_digest
from memory.benchmarking.model.environment import fingerprint_of, lasting_fields
from memory.benchmarking.model.files import write_run
from memory.benchmarking.model.records import Run
from memory.benchmarking.site.build import build_site


def bundle(folder: Path, name: str, systems: int, **environment: object) -> Path:
    """Write a bundle of a league that was not measured. Format 1 has no rounds to compute it from."""
    run_folder, run = league_run(folder / f"{name}-runs", systems)
    where = msgspec.structs.replace(run.environment, **environment)
    where = msgspec.structs.replace(where, fingerprint=fingerprint_of(lasting_fields(where)))
    cases = {(case.category, case.benchmark, case.target): case for case in run.cases}
    refs = []
    for ref in run.results:
        case = cases[ref.category, ref.benchmark, ref.target]
        refs.append(msgspec.structs.replace(ref, params_digest=params_digest(case), headline=""))
    changed: Run = msgspec.structs.replace(run, environment=where, results=refs)
    write_run(run_folder, changed)
    path = folder / "bundles" / f"{name}.zip"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(make_bundle([run_folder]))
    return path


def test_machines_are_never_mixed_and_wrong_bundles_are_left_out(tmp_path: Path) -> None:
    bundle(tmp_path, "ann", 3)
    bundle(tmp_path, "bob", 2, cpu="Another CPU")
    broken = bundle(tmp_path, "eve", 2)
    data = bytearray(broken.read_bytes())
    data[len(data) // 2] ^= 1
    broken.write_bytes(data)
    done = membench("site", "bundles", "-o", "out", cwd=tmp_path)
    assert done.code == 2, done.err
    assert "left out: bundles/eve.zip" in done.err
    leagues = sorted(path.name for path in (tmp_path / "out" / "leagues").iterdir())
    assert len(leagues) == 2
    assert [name.startswith(("Another-CPU", "Test-CPU")) for name in leagues] == [True, True]
    index = (tmp_path / "out" / "index.html").read_text()
    assert "refused" in index
    assert not (tmp_path / "out" / "bundles" / "eve.zip").exists()
    assert (tmp_path / "out" / "bundles" / "ann.zip").exists()


def test_every_link_of_the_site_leads_somewhere(tmp_path: Path) -> None:
    bundle(tmp_path, "ann", 3)
    out = tmp_path / "out"
    build_site(tmp_path / "bundles", out)
    for page in out.rglob("*.html"):
        text = page.read_text()
        for address in re.findall(r'href="([^"#:]+)(?:#[^"]*)?"', text):
            assert (page.parent / address).exists(), f"{page}: {address}"


def test_the_index_is_accessible_on_a_narrow_screen(browser: Browser, tmp_path: Path) -> None:
    bundle(tmp_path, "ann", 3)
    build_site(tmp_path / "bundles", tmp_path / "out")
    for name in ("index.html", "systems/system-0.html", "bundles/ann.html"):
        page = browser.open(tmp_path / "out" / name, width=400)
        assert violations(page) == []
        assert not scrolls_sideways(page)


@pytest.mark.parametrize("folder", ["nothing", "empty"])
def test_a_folder_without_bundles_is_an_error(tmp_path: Path, folder: str) -> None:
    (tmp_path / "empty").mkdir()
    assert "there" in membench("site", folder, "-o", "out", cwd=tmp_path).error
