"""Files of a model are read back as written; other content is refused before an array is created."""

import hashlib
import io
import json
import zipfile

import numpy as np
import pytest

from multicentre.core import model_files
from multicentre.core.model_files import (
    ARRAYS,
    DESCRIPTION,
    check_finite,
    digest_of,
    read_digest,
    read_model,
    write_model,
)
from multicentre.errors import IntegrityError
from support.saved_models import describe, description_of, sign

GOOD = {
    "estimator": "multicentre.survival.cox.estimator:FedCox",
    "parameters": {"ridge": 0.1},
    "facts": {"columns": ["age"]},
    "history": [{"round": 1}],
    "left_out": {},
    "privacy": None,
}
VALUES = {
    "coef_": np.array([0.1, -2.5]),
    "counts": np.arange(6, dtype=np.int32).reshape(2, 3),
    "by_column": np.asfortranarray(np.arange(6.0).reshape(3, 2)),
    "flags": np.array([True, False]),
    "scale": np.array(3.0),
    "nothing": np.zeros((0, 4)),
    "small": np.array([1, 255], dtype=np.uint8),
    "single": np.array([0.1], dtype=np.float32),
}
VERSION = "0.9.0"


@pytest.fixture
def folder(tmp_path):
    """Return the folder of a written model."""
    write_model(tmp_path / "model", GOOD, VALUES, VERSION)
    return tmp_path / "model"


def refusal(folder, read=read_model):
    with pytest.raises(IntegrityError) as caught:
        read(folder, VERSION)
    assert caught.value.where == str(folder)
    return caught.value


def test_a_model_is_read_back_as_it_was_written(folder):
    described, values = read_model(folder, VERSION)
    declared = {name: {"dtype": value.dtype.str, "shape": list(value.shape)} for name, value in VALUES.items()}
    assert described == {"format": 1, "version": VERSION, **GOOD, "arrays": declared}
    assert list(values) == list(VALUES)
    for name, value in VALUES.items():
        assert values[name].dtype == value.dtype
        assert values[name].shape == value.shape
        assert values[name].flags.f_contiguous == value.flags.f_contiguous
        assert values[name].flags.writeable
        np.testing.assert_array_equal(values[name], value)


def test_the_folder_may_exist_and_its_parents_may_not(tmp_path):
    for _ in range(2):
        write_model(tmp_path / "deep" / "model", GOOD, VALUES, VERSION)
    assert sorted(path.name for path in (tmp_path / "deep" / "model").iterdir()) == [DESCRIPTION, ARRAYS]


def test_numbers_of_numpy_are_described_as_json(tmp_path):
    facts = {"n": np.int64(3), "share": np.float64(0.25), "flag": np.bool_(True), "edges": np.array([1.0, 2.5])}
    write_model(tmp_path, {**GOOD, "facts": facts}, {}, VERSION)
    described, arrays = read_model(tmp_path, VERSION)
    assert described["facts"] == {"n": 3, "share": 0.25, "flag": True, "edges": [1.0, 2.5]}
    assert arrays == {}
    with pytest.raises(TypeError, match="Cannot serialise set to JSON"):
        write_model(tmp_path, {**GOOD, "facts": {"names": {"a"}}}, {}, VERSION)


def test_lists_and_numbers_are_stored_as_arrays(tmp_path):
    write_model(tmp_path, GOOD, {"weights": [1.0, 2.0], "n": 3}, VERSION)
    arrays = read_model(tmp_path, VERSION).arrays
    assert (arrays["weights"].tolist(), arrays["n"].item()) == ([1.0, 2.0], 3)


def test_the_description_is_readable_text_without_direction_marks(tmp_path):
    write_model(tmp_path, {**GOOD, "facts": {"site": "Orléans \u202e"}}, {}, VERSION)
    text = (tmp_path / DESCRIPTION).read_text(encoding="utf-8")
    assert '"site": "Orléans \\u202e"' in text
    assert text.startswith('{\n  "format": 1,\n')
    assert read_model(tmp_path, VERSION).description["facts"]["site"] == "Orléans \u202e"


@pytest.mark.parametrize("value", [np.array(["a"]), np.array([None]), np.array([1j]), np.array(["2020"], "M8[Y]")])
def test_arrays_of_other_types_are_not_written(tmp_path, value):
    with pytest.raises(IntegrityError) as caught:
        write_model(tmp_path / "model", GOOD, {"good": np.ones(2), "names": value}, VERSION)
    assert (caught.value.where, caught.value.what) == ("names", f"the array must hold numbers; got {value.dtype}")
    assert not (tmp_path / "model").exists()


# The digest


def test_the_digest_covers_the_description_and_the_arrays(folder):
    """SHA-256 over the length of the description (8 bytes, little-endian), the description and the arrays' file."""
    described, packed = description_of(folder), (folder / ARRAYS).read_bytes()
    digest = described.pop("sha256")
    text = json.dumps(described, sort_keys=True, separators=(",", ":")).encode()
    assert digest == hashlib.sha256(len(text).to_bytes(8, "little") + text + packed).hexdigest()
    assert read_digest(folder, VERSION) == digest
    assert digest_of({**described, "sha256": "ignored"}, packed) == digest
    assert digest_of(dict(reversed(described.items())), packed) == digest
    assert digest_of({**described, "version": "0.9.1"}, packed) != digest
    assert digest_of(described, packed + b"\0") != digest


@pytest.mark.parametrize("read", [read_model, read_digest])
def test_a_change_without_a_new_digest_is_detected(folder, read):
    whole = (folder / DESCRIPTION).read_text()
    (folder / DESCRIPTION).write_text(whole.replace('"ridge": 0.1', '"ridge": 0.2'))
    assert "must match the digest" in refusal(folder, read).what
    (folder / DESCRIPTION).write_text(whole)
    (folder / ARRAYS).write_bytes((folder / ARRAYS).read_bytes() + b"\0")
    assert "must match the digest" in refusal(folder, read).what


@pytest.mark.parametrize("name", [ARRAYS, DESCRIPTION])
def test_a_missing_file_is_named_with_the_remedy(folder, name):
    (folder / name).unlink()
    error = refusal(folder)
    assert error.what == f"the model cannot be read ({name}, FileNotFoundError)"
    assert error.hint == "Restore the folder from a copy, or fit the model again."


# The description


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "JSONDecodeError"),
        ("[" * 100_000, "RecursionError"),
        (b"\xff", "UnicodeDecodeError"),
        ('{"format": 1, "format": 1}', "ValueError"),
    ],
)
def test_a_text_that_is_not_json_cannot_be_read(folder, text, named):
    (folder / DESCRIPTION).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert refusal(folder).what == f"the model cannot be read ({DESCRIPTION}, {named})"


@pytest.mark.parametrize(("text", "named"), [("[]", "list"), ("null", "NoneType"), ("3", "int")])
def test_a_description_that_is_no_object_is_refused(folder, text, named):
    (folder / DESCRIPTION).write_text(text)
    assert refusal(folder).what == f"model.json must be an object; got {named}"


EXPECTED = {
    "estimator": "a text",
    "parameters": "an object",
    "facts": "an object",
    "history": "a list",
    "left_out": "an object",
    "privacy": "an object or null",
    "arrays": "an object",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_an_entry_of_another_type_or_none_at_all_is_refused(folder, name):
    described = description_of(folder)
    for changed in ({**described, name: 3}, {one: value for one, value in described.items() if one != name}):
        (folder / DESCRIPTION).write_text(json.dumps(changed))
        sign(folder)
        assert refusal(folder).what == (
            f"{name} in model.json must be {EXPECTED[name]}; it is missing or something else"
        )


def test_a_missing_digest_is_refused(folder):
    described = description_of(folder)
    del described["sha256"]
    (folder / DESCRIPTION).write_text(json.dumps(described))
    assert refusal(folder).what == "sha256 in model.json must be a text; it is missing or something else"


@pytest.mark.parametrize("name", ["missing", "lost"])
def test_optional_entries_may_be_absent_but_not_of_another_type(folder, name):
    describe(folder, **{name: {"lyon": "no answer"}})
    assert read_model(folder, VERSION).description[name] == {"lyon": "no answer"}
    describe(folder, **{name: None})
    assert refusal(folder).what.startswith(f"{name} in model.json must be an object")


def test_an_undeclared_entry_is_named_without_control_characters(folder):
    describe(folder, **{"z": 1, "\x1b[2K" + "x" * 100: 1})
    named = r"'\x1b[2K" + "x" * 36 + "'"
    assert refusal(folder).what == f"model.json must hold what is declared; it also holds {named}"


# Versions


def test_a_newer_format_names_both_versions_and_the_remedy(folder):
    describe(folder, format=2, version="9.9.0", novelty=1)
    error = refusal(folder)
    assert error.what == (
        f"the model has format 2, written by multicentre '9.9.0'; this is multicentre {VERSION}, which reads format 1"
    )
    assert error.hint == "Install the newer version of multicentre, or save the model again with this one."


def test_a_model_without_a_format_is_older(folder):
    described = description_of(folder)
    del described["format"]
    (folder / DESCRIPTION).write_text(json.dumps(described))
    error = refusal(folder)
    assert error.what == f"the model must have format 1; it has none, as before multicentre {VERSION}"
    assert error.hint == "Save the model again with this version."


@pytest.mark.parametrize(
    "changes", [{"format": True}, {"format": "1"}, {"version": None}, {"version": 1}, {"version": "1" * 65}], ids=repr
)
def test_format_and_version_of_other_types_are_refused(folder, changes):
    describe(folder, **changes)
    assert refusal(folder).what == "format and version in model.json must be a whole number and a text"


def test_a_long_version_is_accepted(folder):
    describe(folder, version="1" * 64)
    assert read_model(folder, VERSION).description["version"] == "1" * 64


# Declarations of arrays


@pytest.mark.parametrize(
    "declared",
    [
        None,
        [],
        {"dtype": "<f8"},
        {"shape": [2]},
        {"dtype": "<f8", "shape": [2], "more": 1},
        {"dtype": "<f8", "shape": "2"},
        {"dtype": "<f8", "shape": [-1]},
        {"dtype": "<f8", "shape": [True]},
        {"dtype": "<f8", "shape": [2.0]},
        {"dtype": "<f8", "shape": [1] * 9},
        {"dtype": 3, "shape": [2]},
        {"dtype": "f8", "shape": [2]},
        {"dtype": ">f8", "shape": [2]},
        {"dtype": "|O8", "shape": [2]},
        {"dtype": "<c8", "shape": [2]},
        {"dtype": "<f9", "shape": [2]},
        {"dtype": "<f16", "shape": [2]},
    ],
    ids=repr,
)
def test_a_declaration_of_another_form_is_refused(folder, declared):
    describe(folder, arrays={**description_of(folder)["arrays"], "coef_": declared})
    assert refusal(folder).what == "the array 'coef_' must be declared with dtype and shape"


def test_the_name_of_an_array_has_at_most_a_thousand_letters(tmp_path):
    write_model(tmp_path / "long", GOOD, {"x" * 1000: np.ones(1)}, VERSION)
    assert list(read_model(tmp_path / "long", VERSION).arrays) == ["x" * 1000]
    write_model(tmp_path / "longer", GOOD, {"x" * 1001: np.ones(1)}, VERSION)
    assert refusal(tmp_path / "longer").what == f"the array '{'x' * 40}' must be declared with dtype and shape"


def test_eight_dimensions_are_read(tmp_path):
    write_model(tmp_path, GOOD, {"deep": np.ones((1,) * 8)}, VERSION)
    assert read_model(tmp_path, VERSION).arrays["deep"].ndim == 8


# The arrays' file


def pack(folder, members, compression=zipfile.ZIP_STORED):
    """Write members to the arrays' file, and a digest that matches."""
    with zipfile.ZipFile(folder / ARRAYS, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    sign(folder)


def npy(value, version=(1, 0)):
    """Return the bytes of an array's file."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, value, version=version)
    return buffer.getvalue()


@pytest.fixture
def pair(tmp_path):
    """Return the folder of a model whose only array is two numbers."""
    write_model(tmp_path, GOOD, {"coef_": np.array([1.0, 2.0])}, VERSION)
    return tmp_path


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_both_versions_of_an_array_header_are_read(pair, version):
    pack(pair, [("coef_.npy", npy(np.array([3.0, 4.0]), version))])
    assert read_model(pair, VERSION).arrays["coef_"].tolist() == [3.0, 4.0]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04torn"])
def test_a_file_that_is_no_archive_cannot_be_read(pair, content):
    (pair / ARRAYS).write_bytes(content)
    sign(pair)
    assert refusal(pair).what == f"the model cannot be read ({ARRAYS}, BadZipFile)"


def test_a_damaged_header_cannot_be_read(pair):
    pack(pair, [("coef_.npy", b"X" * 144)])
    assert refusal(pair).what == f"the model cannot be read ({ARRAYS}, ValueError)"


@pytest.mark.parametrize("names", [[], ["other"], ["coef_", "more"]])
def test_undeclared_and_missing_members_are_refused(pair, names):
    pack(pair, [(f"{name}.npy", npy(np.ones(2))) for name in names])
    assert refusal(pair).what == "model.npz must hold the declared arrays, each once; it holds others"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_appears_twice_is_refused(pair):
    pack(pair, [("coef_.npy", npy(np.ones(2)))] * 2)
    assert refusal(pair).what == "model.npz must hold the declared arrays, each once; it holds others"


@pytest.mark.parametrize("difference", [-1, 1])
def test_members_of_another_size_than_they_take_are_refused(pair, difference):
    """The archive's directory says that the member is not compressed and has another size."""
    content = bytearray((pair / ARRAYS).read_bytes())
    place = content.index(b"PK\x01\x02") + 24  # size of the member in the directory
    size = int.from_bytes(content[place : place + 4], "little") + difference
    content[place : place + 4] = size.to_bytes(4, "little")
    (pair / ARRAYS).write_bytes(content)
    sign(pair)
    assert refusal(pair).what == "model.npz must not be compressed; it is larger than its file"


def test_compressed_members_are_refused(pair):
    pack(pair, [("coef_.npy", npy(np.ones(2)))], zipfile.ZIP_DEFLATED)
    assert refusal(pair).what == "model.npz must not be compressed; it is larger than its file"


@pytest.mark.parametrize("value", [np.ones(1), np.ones(2, np.int64), np.ones((2, 1)), np.ones((1, 2))])
def test_an_array_of_another_dtype_or_shape_is_refused(pair, value):
    pack(pair, [("coef_.npy", npy(value))])
    assert refusal(pair).what in (
        "the array 'coef_' must have the declared dtype and shape; it has others",
        "the array 'coef_' must have 16 bytes as declared; it has another size",
    )


@pytest.mark.parametrize(("size", "fits"), [(16, False), (17, True), (16 + 10_000, True), (16 + 10_001, False)])
def test_a_member_holds_its_values_and_a_header_of_at_most_ten_thousand_bytes(pair, size, fits):
    pack(pair, [("coef_.npy", bytes(size))])
    assert ("must have 16 bytes as declared" in refusal(pair).what) is not fits


def test_bytes_after_the_last_value_are_refused(pair):
    pack(pair, [("coef_.npy", npy(np.ones(2)) + b"\0")])
    assert refusal(pair).what == "the array 'coef_' must end with its last value; bytes follow"


@pytest.mark.parametrize("byte", [2, 255])
def test_flags_other_than_true_and_false_are_refused(tmp_path, byte):
    write_model(tmp_path, GOOD, {"flags": np.array([True, False])}, VERSION)
    content = npy(np.array([True, False]))
    pack(tmp_path, [("flags.npy", content[:-1] + bytes([byte]))])
    assert refusal(tmp_path).what == "the flags of 'flags' must be true or false; one is neither"
    pack(tmp_path, [("flags.npy", content[:-1] + b"\1")])
    assert read_model(tmp_path, VERSION).arrays["flags"].tolist() == [True, True]


def test_an_array_without_flags_may_be_empty(tmp_path):
    write_model(tmp_path, GOOD, {"flags": np.zeros(0, dtype=bool)}, VERSION)
    assert read_model(tmp_path, VERSION).arrays["flags"].tolist() == []


# Sizes


def test_a_description_beyond_the_limit_is_neither_written_nor_read(folder, monkeypatch, tmp_path):
    size = (folder / DESCRIPTION).stat().st_size
    monkeypatch.setattr(model_files, "MAX_DESCRIPTION", size)
    write_model(tmp_path / "as large", GOOD, VALUES, VERSION)
    read_model(tmp_path / "as large", VERSION)
    monkeypatch.setattr(model_files, "MAX_DESCRIPTION", size - 1)
    with pytest.raises(IntegrityError, match=f"model.json must be at most {size - 1:,} bytes; got {size:,}") as caught:
        write_model(tmp_path / "larger", GOOD, VALUES, VERSION)
    assert caught.value.where == str(tmp_path / "larger")
    assert not (tmp_path / "larger").exists()
    assert refusal(folder).what == f"model.json must be at most {size - 1:,} bytes; got {size:,}"


def test_a_description_has_at_most_64_mebibytes(folder):
    with (folder / DESCRIPTION).open("r+b") as file:
        file.truncate(2**26 + 1)
    assert refusal(folder).what == "model.json must be at most 67,108,864 bytes; got 67,108,865"


# Numbers


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_array_that_is_not_finite_is_named(value):
    arrays = {"p_values_": np.array([1.0, value]), "weights": np.array([1.0, 2.0]), "n": np.array([1, 2])}
    check_finite(arrays, {"p_values_"}, "model")
    with pytest.raises(IntegrityError, match="the array p_values_ must be finite; it is not") as caught:
        check_finite(arrays, {"weights", "n"}, "model")
    assert caught.value.where == "model"
    assert caught.value.hint == "Restore the folder from a copy, or fit the model again."
