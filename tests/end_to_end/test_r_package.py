"""The R package: `R CMD check` passes, with its tests on the example study and R's values equal to those of Python."""

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import multicentre as mc

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("processx", "jsonlite", "testthat", "generics")
COMMAND = Path(sys.executable).with_name("multicentre")


def r(*arguments, folder, **environment):
    return subprocess.run(
        ["R", *arguments], cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    folder = tmp_path_factory.mktemp("example")
    make = [sys.executable, ROOT / "examples" / "first_paper" / "make_data.py", folder]
    subprocess.run(make, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if shutil.which("R") is None:
        pytest.skip("R is not installed")
    folder = tmp_path_factory.mktemp("library")
    question = f"q(status = !all(sapply(c{NEEDED}, requireNamespace, quietly = TRUE)))"
    if r("--vanilla", "--slave", "-e", question, folder=folder).returncode:
        pytest.skip(f"R lacks one of {', '.join(NEEDED)}")
    return folder


def test_the_check_of_r_passes(library, example, tmp_path):
    built = r("CMD", "build", str(ROOT / "r"), folder=tmp_path)
    assert built.returncode == 0, built.stderr
    (archive,) = tmp_path.glob("multicentre_*.tar.gz")
    path = f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"
    checked = r(
        "CMD", "check", "--no-manual", archive.name, folder=tmp_path, PATH=path, MULTICENTRE_EXAMPLE=str(example)
    )
    assert "Status: OK" in checked.stdout, checked.stdout
    printed = (tmp_path / "multicentre.Rcheck" / "tests" / "testthat.Rout").read_text(encoding="utf-8")
    assert "SKIP 0" in printed, printed  # a skipped test would have passed the check


def test_coefficients_in_r_are_those_in_python(library, example, tmp_path):
    installed = r("CMD", "INSTALL", f"--library={library}", str(ROOT / "r"), folder=tmp_path)
    assert installed.returncode == 0, installed.stderr
    script = f"""
    options(multicentre.command = "{COMMAND}", digits = 17)
    library(multicentre, lib.loc = "{library}")
    run <- run_study("{example}/study.toml", quiet = TRUE)
    write.csv(generics::tidy(run, "cox"), "tidy.csv", row.names = FALSE)
    cat(run$folder)
    """
    done = r("--vanilla", "--slave", "-e", script, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    model = mc.survival.FedCox.load(Path(done.stdout.strip()) / "analyses" / "cox" / "model")
    with (tmp_path / "tidy.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["term"] for row in rows] == list(model.to_frame().index)
    assert [float(row["estimate"]) for row in rows] == pytest.approx(list(model.coef_), rel=1e-12)
    assert [float(row["std.error"]) for row in rows] == pytest.approx(list(model.standard_errors_), rel=1e-12)
