"""Text summary of a finished run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from multicentre.cli.console import align
from multicentre.cli.results import describe_results
from multicentre.estimator.printing import MISSING, value_text

if TYPE_CHECKING:
    from multicentre.estimator.labels import Labels
    from multicentre.studies import RunFolder


def finish_run(folder: RunFolder) -> Path:
    """Write the report of a finished run and return its path."""
    from multicentre.reports import write_report

    return Path(write_report(folder.path))


def run_as_dict(folder: RunFolder, report: Path) -> dict[str, Any]:
    """Return the summary of a run that ``--json`` prints."""
    analyses = {
        entry["name"]: {
            "comparison": _optional(folder, f"{entry['folder']}/comparison.json"),
            "cross_validation": _optional(folder, f"{entry['folder']}/cross-validation.json"),
        }
        for entry in folder.metadata.get("analyses", ())
    }
    return {
        "folder": str(folder.path),
        "report": str(report),
        "run": folder.metadata,
        **({"analyses": analyses} if analyses else {}),
        "comparison": _optional(folder, "comparison.json"),
        "cross_validation": _optional(folder, "cross-validation.json"),
        "released": folder.read("disclosure.json")["released"],
    }


def describe_run(folder: RunFolder) -> str:
    """Return the results, then the comparison and the sites' releases as text tables."""
    run = folder.metadata
    # before the results, which are of these records of these sites only
    parts = [*describe_refusals(run), *describe_left_out(run), *describe_flow(run)]
    parts += [results] if (results := describe_results(folder.path, run)) else []
    parts += [run["missing"]] if run.get("missing") else []
    for title, place in _places(run):
        parts += [f"{title}{part}" for part in _judgements(folder, place)]
    released = folder.read("disclosure.json")["released"]
    parts.append(describe_releases(released) if run["simulated"] else _AT_THE_SITES)
    if run.get("privacy"):
        parts.append(run["privacy"])
    return "\n\n".join(parts)


def describe_demo(folder: RunFolder, labels: Labels) -> str:
    """Return the answer of each analysis in plain words, next to the measures of the same fit on pooled patients."""
    run = folder.metadata
    n_patients = sum(site["patients"] for site in run["sites"])
    lines = [f"{n_patients:,} simulated patients of {len(run['sites'])} simulated hospitals; no row left its hospital."]
    for entry in run["analyses"]:
        lines += [
            "",
            entry["title"],
            *(f"  {line}" for line in wrap(labels.sentence(entry["answer"] or entry["message"]), 96)),
        ]
        compared = _optional(folder, f"{entry['folder']}/comparison.json") or {"metrics": []}
        metrics = [one for one in compared["metrics"] if one["name"] != "distance"]
        pairs = [(one["label"], one["federated"], one["pooled"]) for one in metrics]
        lines += [f"  {label}: federated {_number(ours)}, pooled {_number(pooled)}" for label, ours, pooled in pairs]
    n_bytes = sum(row["bytes"] for row in folder.read("disclosure.json")["released"])
    return "\n".join([*lines, "", f"Sums and other declared statistics left the hospitals: {n_bytes:,} bytes in all."])


def _places(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a heading and the prefix of the files of every analysis."""
    return [(f"{each['title']}: ", f"{each['folder']}/") for each in run.get("analyses", ())] or [("", "")]


def _judgements(folder: RunFolder, place: str) -> list[str]:
    """Return the comparison and the cross-validation of an analysis, if it has them."""
    comparison, validated = (_optional(folder, f"{place}{name}.json") for name in ("comparison", "cross-validation"))
    is_empty = comparison is None or not (comparison["metrics"] or comparison["notes"])
    parts = [] if is_empty else [describe_comparison(comparison)]
    return parts + ([] if validated is None else [describe_validation(validated)])


def describe_left_out(metadata: Mapping[str, Any]) -> list[str]:
    """Return a line on the sites that were left out of the fit, if there are any."""
    from multicentre.errors import describe_reasons

    left_out = metadata.get("left_out", {})
    if not left_out:
        return []
    n_sites = len(metadata["sites"])
    return [f"Fitted without {len(left_out):,} of {n_sites:,} sites, which refused ({describe_reasons(left_out)})"]


def describe_refusals(metadata: Mapping[str, Any]) -> list[str]:
    """Return what sites with the policy of a new site would refuse of a simulated study, if anything."""
    reasons = list(metadata.get("refused_at_sites", ()))
    if metadata["simulated"]:
        refused = [one for one in metadata.get("analyses", ()) if one["message"] and one["status"] != "failed"]
        reasons += [f"analysis {one['name']}: {one['message']}" for one in refused]
    if not reasons:
        return []
    head = "REAL SITES MAY REFUSE THIS STUDY, by the policy that a new site is given"
    return ["\n".join([head, *(f"- {reason}" for reason in reasons)])]


def describe_flow(metadata: Mapping[str, Any]) -> list[str]:
    """Return the flow of records into the analyses, if the study leaves any out."""
    flow = metadata.get("flow")
    if flow is None:
        return []
    if "refused" in flow:
        return [f"Flow of patients: the sites refused the numbers ({flow['refused']})"]
    left_out = [reason for reason, number in flow["excluded"].items() if number != 0]
    rows = [
        ["records", "all sites", *flow["sites"]],
        ["assessed"],
        *([f"left out: {one}"] for one in left_out),
        ["analysed"],
    ]
    for one in (flow, *flow["sites"].values()):
        numbers = [one["assessed"], *(one["excluded"][reason] for reason in left_out), one["analysed"]]
        for row, number in zip(rows[1:], numbers, strict=True):
            row.append("-" if number is None else f"{number:,}")
    return [f"Flow of patients\n{align(rows)}"]


def describe_comparison(comparison: Mapping[str, Any]) -> str:
    """Return the metrics of the federated, pooled and single-site fits, with the reasons for missing values."""
    rows = [["metric", "federated", "pooled", "site alone: mean (sites)", "better"]]
    for metric in comparison["metrics"]:
        alone = [value for value in metric["site_alone"].values() if value is not None]
        mean = f"{_number(fmean(alone))} ({len(alone)})" if alone else "-"
        fits = [_number(metric["federated"]), _number(metric["pooled"]), mean]
        rows.append([metric["label"], *fits, metric["better"]])
    n_fitted, n_held_out = comparison.get("patients_of_all_fits"), comparison["patients_held_out"]
    patients = f"{n_held_out:,} held-out patients" if n_fitted is None else f"the {n_fitted:,} patients of all fits"
    lines = [f"On {patients} (rows can be pooled in simulations only)"]
    lines += [align(rows)] if len(rows) > 1 else []
    return "\n".join([*lines, *(f"{fit}: {reason}" for fit, reason in comparison["notes"].items())])


def describe_validation(validation: Mapping[str, Any]) -> str:
    """Return the scores of a cross-validation, with their spread."""
    rows = [["score", "mean", "standard error", "worst fold", "best fold"]]
    for name, row in validation["summary"].items():
        rows.append([name, *(_number(row[key]) for key in ("mean", "standard_error", "min", "max"))])
    safe = (
        "no person is in both parts, if the key of the folds is the same at every site"
        if validation["duplicate_safe"]
        else "duplicated patients may make scores too optimistic"
    )
    return "\n".join(
        [f"Cross-validated on {len(validation['records'])} folds of {validation['strategy']}: {safe}", align(rows)]
    )


def describe_releases(released: Sequence[Mapping[str, Any]]) -> str:
    """Return the sites' releases, one row per step; records are counted if a site cannot count patients."""
    counts_records = any(row.get("records_min") and not row["patients_min"] for row in released)
    counted = "records" if counts_records else "patients"
    steps: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in released:
        steps.setdefault((row["step"], row["protection"]), []).append(row)
    table = [["step", "times", "numbers per site", "bytes per site", f"fewest {counted}", "left as"]]
    table += [[step, *_counts(rows, counted), protection] for (step, protection), rows in steps.items()]
    n_sites = len({row["site"] for row in released})
    n_bytes = sum(row["bytes"] for row in released)
    return "\n".join([f"Released by the {n_sites} sites: {n_bytes:,} bytes, no patient's row", align(table)])


def _counts(rows: Sequence[Mapping[str, Any]], counted: str) -> list[str]:
    sites = {row["site"] for row in rows}
    times = max(row["times"] for row in rows)
    numbers = sum(row["numbers"] for row in rows) / len(sites)
    n_bytes = sum(row["bytes"] for row in rows) / len(sites)
    behind = [row[f"{counted}_min"] for row in rows if row[f"{counted}_min"] is not None]
    return [str(times), f"{numbers:,.0f}", f"{n_bytes:,.0f}", str(min(behind)) if behind else "-"]


def _number(value: float | None) -> str:
    return MISSING if value is None else value_text(float(value))


def _optional(folder: RunFolder, name: str) -> Any:
    return folder.read(name) if (folder.path / name).exists() else None


_AT_THE_SITES = "Releases are recorded in the sites' ledgers: run multicentre site log at a site"
