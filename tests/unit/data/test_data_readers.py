import builtins
import gzip
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from multicentre.data import read_multiview, read_table
from multicentre.data.readers import _check_header
from multicentre.errors import ConfigurationError, DataError, MissingExtra

TABLE = "id,age,smoker,icd\n007,61,True,I21\n008,,False,E11\n009,48.25,True,\n"


@pytest.fixture
def write(tmp_path):
    def writer(name, content):
        path = tmp_path / name
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
        return path

    return writer


@pytest.mark.parametrize("name", ["t.csv", "T.CSV", "t.csv.gz", "t.tsv", "t.tsv.gz"])
def test_text_files_are_read_alike(write, name):
    content = TABLE.replace(",", "\t") if ".tsv" in name else TABLE
    table = read_table(write(name, content), ["id"])
    assert list(table.columns) == ["id", "age", "smoker", "icd"]
    assert table["id"].tolist() == ["007", "008", "009"]
    assert table["icd"].tolist()[:2] == ["I21", "E11"]
    np.testing.assert_array_equal(table["age"], [61, np.nan, 48.25])
    assert table["smoker"].dtype == bool


def test_parquet_is_read(tmp_path):
    path = tmp_path / "t.parquet"
    frame = pd.DataFrame({"id": [7, 8], "x": [0.1, np.nan], "code": ["I21", "E11"]})
    frame.to_parquet(path)
    table = read_table(path, ["id"])
    assert table["id"].tolist() == ["7", "8"]
    assert table["code"].tolist() == ["I21", "E11"]
    np.testing.assert_array_equal(table["x"], frame["x"])


def test_numbers_are_read_to_the_last_bit(write):
    values = np.random.default_rng(0).standard_normal(200) * 10.0 ** np.arange(-100, 100)
    table = read_table(write("t.csv", "x\n" + "\n".join(map(repr, values.tolist())) + "\n"))
    np.testing.assert_array_equal(table["x"], values)


def test_a_byte_order_mark_is_no_part_of_the_header(write):
    assert list(read_table(write("t.csv", "\ufeffid,x\n1,2\n")).columns) == ["id", "x"]


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("t.xlsx", "x", "the file name must end in one of"),
        ("t.csv", "", "file is empty"),
        ("t.csv", "id,x\n", "the table must have at least one row; got 0"),
        ("t.csv", "id,x,y\n1,2,3\n4,5\n", "every line must have 3 fields, as the header; line 3 has 2"),
        ("t.csv", "id,x\n1,2\n4,5,6\n", "every line must have 2 fields, as the header; line 3 has 3"),
        ("t.csv", "id,x\n1,2,3\n4,5,6\n", "every line must have 2 fields, as the header; line 2 has 3"),
        ("t.csv", "id,x,x\n1,2,3\n", "column names must be unique; columns 2 and 3 are both 'x'"),
        ("t.csv", ",x\n1,2\n", "every column must have a name; column 1 has none"),
        ("t.csv", "id, age\n1,2\n", "column names must not begin or end with a blank; column 2, ' age', does"),
        ("t.csv", b"PK\x03\x04rest of a workbook", "an Excel workbook"),
        ("t.csv", b"\xd0\xcf\x11\xe0rest of a workbook", "an Excel workbook"),
        ("t.tsv", gzip.compress(b"x\n1\n", mtime=0), "compressed with gzip"),
        ("t.csv", b"PAR1rest", "the content must match the file name; got Parquet"),
        ("t.csv", "id;x\n1;2,5\n", "fields must be separated by commas; got semicolons"),
        ("t.csv", "id\tx\n1\t2\n", "fields must be separated by commas; got tabs"),
        ("t.csv", "id|x\n1|2\n", "fields must be separated by commas; got bars"),
        ("t.tsv", "id,x\n1,2\n", "fields must be separated by tabs; got commas"),
        ("t.csv", "id,x\n1,\xfc\n".encode("latin-1"), "the text must be encoded as UTF-8"),
        ("t.csv", 'id,x\n1,"2\n', "damaged"),
        ("t.csv", "\n\n", "file is empty"),
        ("t.parquet", "PAR1", "damaged"),
        ("t.parquet", b"", "file is empty"),
    ],
)
def test_files_that_cannot_be_used(write, name, content, what):
    path = write(name, content)
    with pytest.raises(DataError, match=what) as caught:
        read_table(path)
    assert caught.value.where == str(path)
    assert caught.value.hint


def test_an_absent_id_column_is_told_before_what_stands_in_the_others(write):
    with pytest.raises(DataError, match="the file must have the id column 'patient'"):
        read_multiview({"a": write("t.csv", "pat,x\nP1,1\nP2,2\n")}, "patient")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match="path must be an existing file"):
        read_table(tmp_path / "t.csv")
    with pytest.raises(DataError, match="path must be a file; got a folder"):
        read_table(tmp_path)


@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_truncated_files_are_damaged(tmp_path, share):
    parquet, packed = tmp_path / "t.parquet", tmp_path / "t.csv.gz"
    frame = pd.DataFrame({"x": np.random.default_rng(0).standard_normal(500)})
    frame.to_parquet(parquet)
    packed.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
    for path in (parquet, packed):
        content = path.read_bytes()
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(DataError, match="the file is damaged or incomplete"):
            read_table(path)


def test_a_missing_pyarrow_is_named(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    pd.DataFrame({"x": [1]}).to_parquet(path)
    true_import = builtins.__import__

    def without_pyarrow(name, *rest, **options):
        if name.partition(".")[0] == "pyarrow":
            raise ImportError(name)
        return true_import(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without_pyarrow)
    with pytest.raises(MissingExtra, match=r"multicentre\[parquet\]"):
        read_table(path)


def test_views_are_joined_on_the_id(write, tmp_path):
    blood = write("blood.csv", "id,iron,anaemia\n007,1.5,False\n008,,True\n")
    image = tmp_path / "image.parquet"
    pd.DataFrame({"volume": [11.0, 12.0], "id": ["009", "007"]}).to_parquet(image)
    data = read_multiview({"blood": blood, "image": image}, id_column="id")
    assert data.ids.tolist() == ["007", "008", "009"]
    assert data.columns == {"blood": ("iron", "anaemia"), "image": ("volume",)}
    assert data.kinds["blood"] == ("number", "boolean")
    np.testing.assert_array_equal(data.array("blood"), [[1.5, 0], [np.nan, 1], [np.nan, np.nan]])
    np.testing.assert_array_equal(data.array("image"), [[12], [np.nan], [11]])
    assert data.n_patients_by_view == {"blood": 2, "image": 2}


@pytest.mark.parametrize("id_column", ["id", None])
def test_one_file_can_hold_several_views(write, id_column):
    path = write("all.csv", "id,a1,b1,a2\n1,2,3,4\n5,6,7,8\n")
    data = read_multiview({"a": path, "b": path}, id_column, {"a": ["a2", "a1"], "b": ["b1"]})
    assert data.columns == {"a": ("a2", "a1"), "b": ("b1",)}
    np.testing.assert_array_equal(data.stacked(["a", "b"]), [[4, 2, 3], [8, 6, 7]])


def test_without_ids_rows_must_be_as_many(write):
    one, two = write("one.csv", "x\n1\n2\n"), write("two.csv", "y\n3\n4\n")
    assert len(read_multiview({"one": one, "two": two})) == 2
    longer = write("longer.csv", "y\n3\n4\n5\n")
    with pytest.raises(DataError, match="views must have equal numbers of rows; got one 2, two 3"):
        read_multiview({"one": one, "two": longer})


@pytest.mark.parametrize(
    ("content", "columns", "what"),
    [
        ("x\n1\n", None, "the file must have the id column 'id'"),
        ("id,x\nsecret,1\nsecret,2\n", None, "1 rows repeat an earlier 'id'"),
        ("id,x\n1,2\n,3\n", None, "1 rows have no 'id'"),
        ("id,x\n1,2\n", ["z"], "the column must be in the file"),
        ("id,x\n1,secret\n", None, r"cells must be numbers; 1 of 1 are not \(row 1\)"),
        ("id\n1\n", None, "a view must have at least one column; got 0"),
    ],
)
def test_files_that_do_not_join(write, content, columns, what):
    path = write("v.csv", content)
    with pytest.raises(DataError, match=what) as caught:
        read_multiview({"v": path}, "id", columns and {"v": columns})
    assert str(path) in caught.value.where
    assert "secret" not in str(caught.value)


def test_requests_that_make_no_sense(write):
    path = write("v.csv", "id,x\n1,2\n")
    with pytest.raises(ConfigurationError, match="columns must list the columns of views that share a file"):
        read_multiview({"a": path, "b": path}, "id", {"a": ["x"]})
    with pytest.raises(ConfigurationError, match="columns must name views with a file; this view has none"):
        read_multiview({"a": path}, "id", {"b": ["x"]})


def test_a_header_is_checked_in_time_proportional_to_its_length():
    names = [f"column {number}" for number in range(100_000)]
    start = time.process_time()
    _check_header(names, Path("wide.csv"))
    assert time.process_time() - start < 5  # a comparison with all earlier names takes over a minute
    with pytest.raises(DataError, match="columns 7 and 100001 are both"):
        _check_header([*names, names[6]], Path("wide.csv"))
