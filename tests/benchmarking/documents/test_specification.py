"""The commands and code of the benchmarking specification work as written (except for Windows shells)."""
# ruff: noqa: E501 - the document has its own lines

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from membench import once
from smallest import smallest_config

from memory.benchmarking.config import BenchmarkConfig
from memory.benchmarking.model.files import encode_json, read_result, run_folders
from memory.benchmarking.model.paths import NO_FIGURES
from memory.benchmarking.model.records import Result
from memory.benchmarking.run.discovery import discover

ROOT = Path(__file__).resolve().parents[3]

RUNNING = """
run
run --category storage
run --category storage --benchmark write_throughput
run --parallel --workers 8
run --config custom_config.json
"""
SPELLINGS = ("python -m memory.benchmarking.cli", "python scripts/benchmark.py")
ONLY_PLANNED = {
    (spelling, arguments)
    for spelling in SPELLINGS
    for arguments in ("run", "run --config custom_config.json")
} | {(SPELLINGS[1], "run --parallel --workers 8"), (SPELLINGS[1], "run --category storage")}
"""What is not measured, because the rest measures the same: `--parallel` runs every benchmark, and
`--category storage` one after the other. The second spelling measures one benchmark."""

CONFIGURATION = """
from memory.benchmarking.config import BenchmarkConfig

# Create default config
config = BenchmarkConfig()

# Customize configuration
config.storage.batch_sizes = [10, 50, 100]
config.retrieval.similarity_thresholds = [0.6, 0.7, 0.8]
config.output_dir = "custom_benchmark_results"

# Save configuration for reuse
config.save("custom_config.json")
"""

ANALYSIS = """
from memory.benchmarking.results import BenchmarkResults

# Initialize results manager
results = BenchmarkResults("benchmark_results")

# List results
storage_results = results.list_results(category="storage")

# Compare results
comparison_df = results.compare_results(storage_results)

# Generate a report
report_path = results.generate_report(category="storage")

# Create visualization
fig = results.plot_comparison(
    storage_results, 
    metric="throughput_ops_per_second",
    x_axis="batch_size"
)
results.save_plot(fig, "storage_throughput.png")
"""

OWN_BENCHMARK = '''
import os
import tempfile
import time
from typing import Any, Dict, List, Optional

from memory import AgentMemorySystem, MemoryConfig
from memory.benchmarking.benchmarks.storage import generate_test_state


def benchmark_my_custom_benchmark(param1: int = 100, param2: float = 0.5, **kwargs) -> Dict[str, Any]:
    """Description of what this benchmark measures.
    
    Args:
        param1: Description of parameter 1
        param2: Description of parameter 2
        
    Returns:
        Dictionary with benchmark results
    """
    results = {}
    
    # Benchmark implementation
    # ...
    
    return results


def benchmark_write_throughput(batch_sizes: Optional[List[int]] = None, 
                              data_complexity_levels: Optional[List[int]] = None, 
                              **kwargs) -> Dict[str, Any]:
    """Benchmark write throughput across memory tiers.
    
    Args:
        batch_sizes: List of batch sizes to test
        data_complexity_levels: List of data complexity levels to test
        
    Returns:
        Dictionary with benchmark results
    """
    batch_sizes = batch_sizes or [10, 100, 1000, 10000]
    data_complexity_levels = data_complexity_levels or [1, 5, 10]
    
    results = {}
    
    for complexity in data_complexity_levels:
        complexity_results = {}
        
        for batch_size in batch_sizes:
            print(f"Testing write throughput with batch_size={batch_size}, complexity={complexity}")
            
            # Create a fresh memory system for each test
            config = MemoryConfig()
            temp_db_path = os.path.join(tempfile.gettempdir(), f"benchmark_ltm_{complexity}_{batch_size}.db")
            config.ltm_config.db_path = temp_db_path
            memory_system = AgentMemorySystem(config)
            
            # Generate test data
            test_states = [generate_test_state(complexity) for _ in range(batch_size)]
            
            # Test STM write throughput
            start_time = time.time()
            for i, state in enumerate(test_states):
                memory_system.store_agent_state(
                    agent_id="benchmark_agent",
                    state_data=state,
                    step_number=i
                )
            end_time = time.time()
            
            execution_time = end_time - start_time
            stm_throughput = batch_size / execution_time if execution_time > 0 else 0
            
            batch_results = {
                "throughput_ops_per_second": stm_throughput,
                "total_time_seconds": execution_time,
                "items_processed": batch_size
            }
            
            complexity_results[f"batch_{batch_size}"] = batch_results
            
            # Clean up temp file
            if os.path.exists(temp_db_path):
                try:
                    os.remove(temp_db_path)
                except:
                    pass
        
        results[f"complexity_{complexity}"] = complexity_results
    
    return results
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return new_project(tmp_path)


def new_project(folder: Path) -> Path:
    """Fill a folder with `scripts/benchmark.py`, where the specification calls it, and small sizes."""
    (folder / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "benchmark.py", folder / "scripts")
    smallest_config(folder / "custom_config.json")
    return folder


Measured = Callable[[str], Path]


@pytest.fixture
def measured(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Measured:
    """Return a function: it returns a folder in which a command was run. Each one runs once."""

    def folder_after(command: str) -> Path:
        def run(folder: Path) -> None:
            done = call(new_project(folder), command)
            assert done.returncode == 0, done.stderr

        name = "specified-" + re.sub(r"\W+", "-", command)
        return shutil.copytree(once(tmp_path_factory, name, run), tmp_path / "measured")

    return folder_after


def call(project: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the specification; the sizes come from MEMBENCH_CONFIG, not from its arguments."""
    words = shlex.split(command)
    assert words[0] == "python"
    environment = {
        **os.environ,
        "MEMBENCH_CONFIG": str(project / "custom_config.json"),
        "PYTHONPATH": str(ROOT),
        "NO_COLOR": "1",
    }
    return subprocess.run(
        [sys.executable, *words[1:]], cwd=project, env=environment, capture_output=True, text=True
    )


def results_below(folder: Path) -> list[Result]:
    return [read_result(path) for run in run_folders(folder) for path in sorted(run.glob("*/*_*.json"))]


@pytest.mark.parametrize("arguments", RUNNING.strip().splitlines())
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_commands_to_run_benchmarks_work(
    project: Path, measured: Measured, spelling: str, arguments: str
) -> None:
    everything = {benchmark.full_name for benchmark in discover().benchmarks}
    chosen = everything
    if "--benchmark" in arguments:
        chosen = {"storage.write_throughput"}
    elif "--category" in arguments:
        chosen = {name for name in everything if name.startswith("storage.")}
    if (spelling, arguments) in ONLY_PLANNED:
        planned = call(project, f"{spelling} {arguments} --dry-run")
        assert planned.returncode == 0, planned.stderr
        assert "nothing was run" in planned.stdout
        assert {line.split()[0] for line in planned.stdout.splitlines() if line} & everything == chosen
        return
    results = results_below(measured(f"{spelling} {arguments}") / "benchmark_results")
    assert {f"{result.category}.{result.benchmark}" for result in results} == chosen
    assert {result.metadata["parallel"] for result in results} == {"--parallel" in arguments}


def test_the_commands_and_code_for_results_work(measured: Measured) -> None:
    project = measured(f"{SPELLINGS[0]} run --category storage")
    listed = call(project, "python -m memory.benchmarking.cli results list")
    assert listed.returncode == 0, listed.stderr
    assert run_folders(project / "benchmark_results")[0].name in listed.stdout
    reported = call(project, "python -m memory.benchmarking.cli results report --category storage")
    assert reported.returncode == 0, reported.stderr
    page = next(Path(project / word) for word in reported.stdout.split() if word.endswith(".html"))
    assert "write_throughput" in page.read_text()
    subprocess.run(
        [sys.executable, "-c", ANALYSIS],
        cwd=project,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert list((project / "benchmark_results").rglob("storage_throughput.png"))


COMPARING = (
    "python -m memory.benchmarking.cli compare --current-dir results/current --baseline-dir results/baseline"
    " --threshold 0.1"
)


def test_the_comparison_with_a_baseline_finds_a_regression(project: Path) -> None:
    for name in ("current", "baseline"):
        done = call(
            project,
            f"python -m memory.benchmarking.cli run --output-dir results/{name}"
            " --category storage --benchmark read_latency",  # not in the specification: a whole run takes long
        )
        assert done.returncode == 0, done.stderr
    undecided = call(project, COMPARING)
    assert undecided.returncode == 0, undecided.stderr  # one round each proves nothing
    assert "could not be decided" in undecided.stdout
    for name, factor in (("current", 1.5), ("baseline", 1.0)):
        with_rounds(next((project / "results" / name).glob("*/storage/*.json")), factor)
    regressed = call(project, COMPARING)
    assert regressed.returncode == 2, regressed.stderr
    assert "REGRESSED" in regressed.stdout


def with_rounds(path: Path, factor: float) -> None:
    """Rewrite a result as if it had three rounds, with all values multiplied by `factor`."""
    result = read_result(path)
    for name, figure in result.metrics.items():
        value = factor * figure.value
        rounds = [value, 1.01 * value, 0.99 * value]
        steady = rounds if figure.steady else []
        result.metrics[name] = msgspec.structs.replace(figure, value=value, rounds=rounds, steady=steady)
    path.write_bytes(encode_json(result))


def test_a_result_file_has_the_specified_format(measured: Measured) -> None:
    project = measured(f"{SPELLINGS[0]} run --category storage --benchmark write_throughput")
    (run,) = run_folders(project / "benchmark_results")
    (path,) = run.glob("storage/*.json")
    assert re.fullmatch(r"write_throughput_\d{8}_\d{6}\.json", path.name)
    result = read_result(path)
    assert (result.benchmark, result.category) == ("write_throughput", "storage")
    assert path.stem == f"write_throughput_{result.timestamp}"
    leaf: dict[str, Any] = result.results["complexity_1"]["batch_10"]["stm"]["one_by_one"]
    assert {"throughput_ops_per_second", "total_time_seconds", "items_processed"} <= set(leaf)
    assert result.metadata["execution_time"] > 0
    assert result.metadata["params"]["batch_sizes"] == [5, 10]


def test_the_configuration_code_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(CONFIGURATION, {})
    saved = BenchmarkConfig.load("custom_config.json")
    assert saved.storage.batch_sizes == [10, 50, 100]
    assert saved.retrieval.similarity_thresholds == [0.6, 0.7, 0.8]
    assert saved.output_dir == "custom_benchmark_results"


@pytest.mark.parametrize("imports", [True, False])
def test_the_skeleton_alone_runs(project: Path, imports: bool) -> None:
    skeleton = OWN_BENCHMARK.partition("def benchmark_write_throughput")[0]
    if not imports:  # as the specification prints it
        skeleton = skeleton[skeleton.index("def ") :]
    (project / "my_benchmarks.py").write_text(skeleton)
    command = (
        "python -m memory.benchmarking.cli run --path my_benchmarks.py --benchmark my_custom_benchmark"
    )
    done = call(project, command)
    assert done.returncode == 0, done.stderr
    assert f"WARNING: my_benchmarks.my_custom_benchmark: {NO_FIGURES}" in done.stdout
    shown = call(project, "python -m memory.benchmarking.cli results show")
    assert shown.returncode == 0, shown.stderr
    assert "returned no figures" in shown.stdout
    reported = call(project, "python -m memory.benchmarking.cli results report")
    assert reported.returncode == 0, reported.stderr


def test_custom_benchmarks_run_and_can_be_configured(project: Path) -> None:
    (project / "my_benchmarks.py").write_text(OWN_BENCHMARK)
    done = call(
        project,
        "python -m memory.benchmarking.cli run --path my_benchmarks.py --category my_benchmarks --rounds 2"
        " --set my_benchmarks.batch_sizes=5,20 --set my_benchmarks.data_complexity_levels=1",
    )
    assert done.returncode == 0, done.stderr
    custom, throughput = results_below(project / "benchmark_results")
    assert (custom.results, custom.metrics) == ({}, {})
    assert f"WARNING: my_benchmarks.my_custom_benchmark: {NO_FIGURES}" in done.stdout
    assert throughput.metadata["params"]["batch_sizes"] == [5, 20]
    leaf = throughput.results["complexity_1"]["batch_20"]
    assert leaf["items_processed"] == 20
    assert isinstance(leaf["items_processed"], int)
    assert leaf["throughput_ops_per_second"] > 0
    assert throughput.metrics["complexity_1/batch_20/throughput_ops_per_second"].low is not None
