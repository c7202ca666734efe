"""A model file that is not what was written gives an integrity error, never a crash, another class or more memory.

The digest of a model's files finds damage. It is no signature: a forger writes one that fits, so most of the changes
here are signed, and are then held against what the files declare.
"""

import functools
import io
import json
import shutil
import tracemalloc
import warnings
import zipfile

import numpy as np
import pytest

import multicentre as mc
from multicentre.core import model_files
from multicentre.core.model_files import ARRAYS, DESCRIPTION, FORMAT, MAX_DESCRIPTION, write_model
from multicentre.errors import IntegrityError, NoiseWarning
from multicentre.estimator.base import FederatedEstimator
from multicentre.phenotyping import DPFact
from support.event_sites import simulate_events
from support.method_cases import CASES
from support.saved_models import describe, description_of, mutate, read_arrays, sign, store
from support.toy_method import federate

ESTIMATOR = "multicentre.survival.cox.estimator:FedCox"
GOOD = {"estimator": ESTIMATOR, "parameters": {}, "facts": {}, "history": [], "left_out": {}, "privacy": None}
QUICK = ("kaplan-meier", "fed-cox", "dpfact, as published", "fed-mv-ppca, as published", "fed-xgb")
# Fits of a tenth of a second, of every family of estimators.
ALL = (
    *QUICK,
    "log-rank, weighted",
    "survival-evaluation, within sites",
    "fed-cox, one round",
    "fed-surv-boost, corrected text",
    "ada-boost-f",
    "fed-surf",
    "trip",
    "phenotype-outcome",
    "fed-mvfcm",
    "fed-mvl",
    "fed-msgl, as published",
    "aalen-johansen",
)
N_QUICK, N_ALL = 60, 720
MEBIBYTE = 2**20


@functools.cache
def fitted(name):
    case = CASES[name]
    with federate(case.sites(), policy=case.policy) as federation, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return case.make().fit(federation)


@functools.cache
def private():
    events = simulate_events()
    with mc.Federation.in_process(events.sites(3)) as federation, warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseWarning)
        return DPFact(3, epsilon=8.0, vocabulary=events.tensor.codes).fit(federation)


def written(folder, description=None, arrays=None):
    write_model(folder, GOOD | (description or {}), {"loadings": np.ones(2)} if arrays is None else arrays, "0.1.0")
    return folder


# --- descriptions and arrays that are none ---------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", "3", "[" * 100_000, '{"format": 1, "format": 1}', "\ud800"])
def test_a_strange_description_is_refused(tmp_path, text):
    (written(tmp_path) / DESCRIPTION).write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(IntegrityError):
        FederatedEstimator.load(tmp_path)


@pytest.mark.parametrize(
    "named",
    [
        "os:system",
        "subprocess:Popen",
        "multicentre.estimator.base:importlib",
        "multicentre.nowhere:Model",
        "multicentre.estimator.base:Figure",
        "multicentre.estimator.base:FederatedEstimator",
        "multicentre.survival:FedCox",
        "multicentre..estimator:Figure",
        "multicentre. os:system",
        "",
    ],
)
def test_a_class_that_is_no_estimator_of_the_package_is_refused(tmp_path, named):
    with pytest.raises(IntegrityError):
        FederatedEstimator.load(written(tmp_path, {"estimator": named}))


VALUES = (3, "x", [], {}, None, True, 1.5)
DECLARED = {name: type(value) for name, value in GOOD.items()}
DECLARED |= {"format": int, "version": str, "arrays": dict, "sha256": str}
OTHERS = [(name, value) for name, kind in DECLARED.items() for value in VALUES if type(value) is not kind]


@pytest.mark.parametrize(("name", "value"), [one for one in OTHERS if one != ("privacy", {})])
def test_an_entry_of_another_type_is_refused(tmp_path, name, value):
    written(tmp_path)
    described = description_of(tmp_path)
    described[name] = value
    (tmp_path / DESCRIPTION).write_text(json.dumps(described))
    if name != "sha256":
        sign(tmp_path)
    with pytest.raises(IntegrityError, match=r"must be|must have format"):
        FederatedEstimator.load(tmp_path)


def test_an_undeclared_entry_is_refused(tmp_path):
    describe(written(tmp_path), extra=1)
    with pytest.raises(IntegrityError, match="it also holds 'extra'"):
        FederatedEstimator.load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04torn", b"\x80\x04}."])
@pytest.mark.parametrize("signed", [False, True])
def test_strange_arrays_are_refused(tmp_path, content, signed):
    (written(tmp_path) / ARRAYS).write_bytes(content)
    if signed:
        sign(tmp_path)
    with pytest.raises(IntegrityError, match="cannot be read" if signed else "must match the digest"):
        FederatedEstimator.load(tmp_path)


def test_arrays_of_objects_are_refused(tmp_path):
    buffer = io.BytesIO()
    np.savez(buffer, loadings=np.array([{"a": 1}], dtype=object))
    (written(tmp_path) / ARRAYS).write_bytes(buffer.getvalue())
    describe(tmp_path, arrays={"loadings": {"dtype": "|O8", "shape": [1]}})
    with pytest.raises(IntegrityError, match="must be declared with dtype and shape"):
        FederatedEstimator.load(tmp_path)
    describe(tmp_path, arrays={"loadings": {"dtype": "<f8", "shape": [1]}})
    with pytest.raises(IntegrityError):
        FederatedEstimator.load(tmp_path)


def test_a_missing_model_is_refused(tmp_path):
    with pytest.raises(IntegrityError, match="cannot be read"):
        FederatedEstimator.load(tmp_path / "nowhere")


@pytest.mark.parametrize("name", [ARRAYS, DESCRIPTION])
def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path, name):
    (written(tmp_path) / name).unlink()
    (tmp_path / name).mkdir()
    with pytest.raises(IntegrityError, match="cannot be read"):
        FederatedEstimator.load(tmp_path)


# --- sizes -----------------------------------------------------------------------------------------------------------


def bomb(folder, members):
    """Write an archive of zeros, which deflate to a thousandth, and return the most memory that a refusal takes."""
    with zipfile.ZipFile(folder / ARRAYS, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, n_bytes in members.items():
            header = io.BytesIO()
            terms = {"descr": "|u1", "fortran_order": False, "shape": (n_bytes,)}
            np.lib.format.write_array_header_1_0(header, terms)
            with archive.open(f"{name}.npy", "w") as file:
                file.write(header.getvalue())
                for _ in range(n_bytes // MEBIBYTE):
                    file.write(bytes(MEBIBYTE))
    sign(folder)
    assert (folder / ARRAYS).stat().st_size < n_bytes / 500
    tracemalloc.start()
    try:
        with pytest.raises(IntegrityError) as raised:
            FederatedEstimator.load(folder)
        return raised.value, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_an_undeclared_member_is_not_read(tmp_path):
    store(written(tmp_path), {"loadings": np.ones(2)})
    error, peak = bomb(tmp_path, {"loadings": 2 * MEBIBYTE, "more": 64 * MEBIBYTE})
    assert "must hold the declared arrays" in error.what
    assert peak < 8 * MEBIBYTE


@pytest.mark.parametrize("shape", [[2], [64 * MEBIBYTE]])
def test_a_declared_member_that_unpacks_to_a_thousandfold_is_not_read(tmp_path, shape):
    describe(written(tmp_path), arrays={"loadings": {"dtype": "|u1", "shape": shape}})
    error, peak = bomb(tmp_path, {"loadings": 64 * MEBIBYTE})
    assert "must not be compressed" in error.what
    assert peak < 8 * MEBIBYTE


def test_a_shape_beyond_all_memory_is_refused_by_its_size(tmp_path):
    describe(written(tmp_path), arrays={"loadings": {"dtype": "<f8", "shape": [2**40, 2**40]}})
    with pytest.raises(IntegrityError, match="bytes as declared"):
        FederatedEstimator.load(tmp_path)


def test_members_that_share_their_bytes_are_refused(tmp_path):
    """Many entries of an archive's directory can point at one member."""
    write_model(tmp_path, GOOD, {"loadings": np.zeros(4096), "mean": np.zeros(4096)}, "0.1.0")
    packed = bytearray((tmp_path / ARRAYS).read_bytes())
    directory = packed.index(b"PK\x01\x02")
    second = packed.index(b"PK\x01\x02", directory + 4)
    packed[second + 42 : second + 46] = packed[directory + 42 : directory + 46]  # offset of the member's header
    (tmp_path / ARRAYS).write_bytes(packed)
    sign(tmp_path)
    with pytest.raises(IntegrityError):
        FederatedEstimator.load(tmp_path)


def test_a_description_beyond_the_limit_is_neither_read_nor_written(tmp_path, monkeypatch):
    written(tmp_path)
    with (tmp_path / DESCRIPTION).open("r+b") as file:
        file.truncate(MAX_DESCRIPTION + 1)
    with pytest.raises(IntegrityError, match="must be at most"):
        FederatedEstimator.load(tmp_path)
    monkeypatch.setattr(model_files, "MAX_DESCRIPTION", 2000)
    with pytest.raises(IntegrityError, match="must be at most"):
        written(tmp_path, {"facts": {"names": ["x"] * 1000}})


# --- versions --------------------------------------------------------------------------------------------------------


def test_a_newer_format_names_both_versions(tmp_path):
    describe(written(tmp_path), format=FORMAT + 1, version="9.9.0", novelty={"anything": 1})
    with pytest.raises(IntegrityError, match=rf"'9\.9\.0'.*this is multicentre {mc.__version__}"):
        FederatedEstimator.load(tmp_path)


def test_a_parameter_of_a_newer_version_names_both_versions(tmp_path):
    fitted("fed-cox").save(tmp_path)
    parameters = description_of(tmp_path)["parameters"]
    describe(tmp_path, version="9.9.0", parameters=parameters | {"frailty": "gamma"})
    with pytest.raises(IntegrityError, match=rf"multicentre {mc.__version__}; got 'frailty'.*'9\.9\.0'"):
        mc.survival.FedCox.load(tmp_path)


def test_a_file_without_a_format_says_what_to_do(tmp_path):
    written(tmp_path)
    described = description_of(tmp_path)
    del described["format"]
    (tmp_path / DESCRIPTION).write_text(json.dumps(described))
    with pytest.raises(IntegrityError, match="Save the model again"):
        FederatedEstimator.load(tmp_path)


def test_versions_move_no_cursor(tmp_path):
    describe(written(tmp_path), format=7, version="\x1b[2K9")
    with pytest.raises(IntegrityError) as raised:
        FederatedEstimator.load(tmp_path)
    assert str(raised.value).isprintable()


# --- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.dealt(3)
@pytest.mark.parametrize("name", ["fed-cox", *(pytest.param(name, marks=pytest.mark.slow) for name in ALL)])
def test_arrays_that_are_not_numbers_are_refused(tmp_path, name):
    model = fitted(name)
    model.save(tmp_path)
    whole = read_arrays(tmp_path)
    finite = {name: values for name, values in whole.items() if name not in model.may_be_missing and values.size}
    real = [name for name, values in finite.items() if values.dtype.kind == "f"]
    for one in real:
        for value in (np.nan, np.inf):
            store(tmp_path, whole | {one: np.full_like(whole[one], value)})
            with pytest.raises(IntegrityError, match=f"the array {one} must be finite"):
                type(model).load(tmp_path)


def test_errors_that_could_not_be_estimated_are_read_back(tmp_path):
    model = fitted("fed-cox")
    model.save(tmp_path)
    arrays = read_arrays(tmp_path)
    store(tmp_path, arrays | {"standard_errors_": np.full(3, np.nan), "p_values_": np.full(3, np.nan)})
    assert np.isnan(mc.survival.FedCox.load(tmp_path).standard_errors_).all()


def test_a_model_that_is_not_finite_is_not_saved(tmp_path):
    model = mc.survival.FedCox.load(saved_cox(tmp_path))
    model.coef_ = np.full(3, np.nan)
    with pytest.raises(IntegrityError, match="coef_ must be finite"):
        model.save(tmp_path)


def saved_cox(folder):
    fitted("fed-cox").save(folder)
    return folder


# --- promises of privacy ---------------------------------------------------------------------------------------------


def test_a_promise_that_was_read_says_that_it_is_a_statement_of_the_file(tmp_path):
    model = private()
    model.save(tmp_path)
    again = DPFact.load(tmp_path)
    assert again.privacy_ == model.privacy_
    assert str(again.privacy_).endswith("As stated in the model's file; not verified.")
    assert "stated" not in str(model.privacy_)
    again.save(tmp_path)
    assert DPFact.load(tmp_path).privacy_ == model.privacy_


@pytest.mark.parametrize(
    "changes",
    [
        *({"epsilon": value} for value in (0.1, True, "1", -1.0, None)),
        {"delta": 1e-9},
        {"unit": "visit"},
        {"sites_per_patient": 0},
        {"from_file": False, "more": 1},
    ],
    ids=repr,
)
def test_a_promise_that_the_parameters_do_not_make_is_refused(tmp_path, changes):
    private().save(tmp_path)
    describe(tmp_path, privacy=description_of(tmp_path)["privacy"] | changes)
    with pytest.raises(IntegrityError, match="must describe a consistent model"):
        DPFact.load(tmp_path)


def test_a_model_without_noise_cannot_promise_privacy(tmp_path):
    promise = {"epsilon": 0.5, "delta": 1e-6, "unit": "patient", "adjacency": "add-remove", "sites_per_patient": 1}
    for name in ("kaplan-meier", "fed-cox", "fed-xgb"):
        fitted(name).save(tmp_path)
        describe(tmp_path, privacy=promise)
        with pytest.raises(IntegrityError, match="a promise of privacy needs parameters with noise"):
            FederatedEstimator.load(tmp_path)


# --- mutations -------------------------------------------------------------------------------------------------------


def loads(folder):
    """Return whether a changed folder loads; anything but a model or an integrity error is raised."""
    try:
        model = FederatedEstimator.load(folder)
    except IntegrityError as refused:
        told = str(refused)
    else:
        assert isinstance(model, FederatedEstimator)
        return True
    assert told.isprintable()
    return False


def check_mutations(name, folder, count, seed):
    fitted(name).save(folder / "whole")
    loaded = []
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        changed = folder / "changed"
        shutil.copytree(folder / "whole", changed, dirs_exist_ok=True)
        is_signed = mutate(changed, rng)
        same = is_same(folder / "whole", changed)
        found = loads(changed)
        assert is_signed or same or not found, f"mutation {number} of {name} was not found by the digest"
        loaded.append(found)
    assert not all(loaded)


def is_same(folder, other):
    """Tell whether two folders hold the same description, however it is written, and the same bytes of arrays."""
    try:
        described = description_of(other)
    except (ValueError, RecursionError):
        return False
    return described == description_of(folder) and (folder / ARRAYS).read_bytes() == (other / ARRAYS).read_bytes()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", QUICK)
def test_three_hundred_mutated_models_load_or_are_refused(tmp_path, name):
    check_mutations(name, tmp_path, N_QUICK, 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ALL)
def test_twelve_thousand_mutated_models_load_or_are_refused(tmp_path, name):
    check_mutations(name, tmp_path, N_ALL, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_every_family_of_models_is_read_back(tmp_path, name):
    model = fitted(name)
    model.save(tmp_path / "first")
    again = type(model).load(tmp_path / "first")
    again.save(tmp_path / "second")
    for file in (ARRAYS, DESCRIPTION):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()
