"""A comparison as a JUnit file, which most CI systems show: a test for each judged metric."""

from __future__ import annotations

from memory.benchmarking.text.display import clean
from memory.benchmarking.verdicts.records import UNDECIDED, Comparison, MetricVerdict
from memory.benchmarking.verdicts.words import conclusion, figures_text, has_targets, reasoned_text


def as_junit(comparison: Comparison, *, strict: bool = False) -> str:
    """Return the file. A metric fails if it regressed, is missing or can't be compared.

    An inconclusive metric is skipped, or fails with `strict`.
    """
    from xml.etree.ElementTree import Element, SubElement, indent, tostring

    root = Element("testsuites", name=clean(f"{comparison.base} → {comparison.current}"))
    suites: dict[str, list[MetricVerdict]] = {}
    with_target = has_targets(comparison)
    for each in comparison.metrics:
        if each.verdict is not None:
            suites.setdefault(each.name + (f" on {each.target}" if with_target else ""), []).append(each)
    if not comparison.comparable:
        suite = SubElement(root, "testsuite", name="environment", tests="1", failures="1")
        case = SubElement(suite, "testcase", classname="environment", name="same environment")
        failure = SubElement(case, "failure", type="incomparable", message=conclusion(comparison))
        failure.text = _clean_lines(comparison.environment_differences)
    if comparison.problems:
        count = str(len(comparison.problems))
        suite = SubElement(root, "testsuite", name="complete results", tests=count, failures=count)
        for problem in comparison.problems:
            case = SubElement(suite, "testcase", classname="complete results", name=clean(problem))
            SubElement(case, "failure", type="problem", message=clean(problem))
    for name, metrics in suites.items():
        failed = [each for each in metrics if comparison.fails(each, strict)]
        skipped = [each for each in metrics if each.verdict in UNDECIDED and each not in failed]
        suite = SubElement(
            root,
            "testsuite",
            name=clean(name),
            tests=str(len(metrics)),
            failures=str(len(failed)),
            skipped=str(len(skipped)),
        )
        for each in metrics:
            case = SubElement(
                suite, "testcase", classname=clean(name), name=clean(each.path or "the whole benchmark")
            )
            message = clean(reasoned_text(each))
            if each in failed:
                failure = SubElement(case, "failure", type=str(each.verdict), message=message)
                failure.text = clean(figures_text(each))
            elif each in skipped:
                SubElement(case, "skipped", message=f"{each.verdict}: {message}")
            else:
                SubElement(case, "system-out").text = f"{each.verdict}: {message}"
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _clean_lines(lines: list[str]) -> str:
    return "\n".join(clean(line) for line in lines)
