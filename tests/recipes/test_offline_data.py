"""The embedded data: real docstrings, no answers in the text, no text in two parts, nothing imported, kept on disk."""

import os
import re
import subprocess
import sys
from pathlib import Path

import offline_data
import pyarrow.parquet as pq
import pytest
from offline_data import PACKAGES, masked, offline_dataset

RECIPES = Path(offline_data.__file__).parent


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docstrings")
    return offline_dataset(folder), folder


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Two packages made for the test, in place of the installed ones."""
    for name in ("alpha", "beta"):
        monkeypatch.setitem(PACKAGES, name, (name,))
    monkeypatch.syspath_prepend(tmp_path)

    def write(name, source, file="__init__.py"):
        path = tmp_path / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source) if isinstance(source, str) else path.write_bytes(source)

    return write


def texts(parts):
    return {
        text: parts[part].features["label"].names[label]
        for part in parts
        for text, label in zip(parts[part]["text"], parts[part]["label"], strict=True)
    }


@pytest.mark.slow
def test_thousands_of_rows_of_a_dozen_packages(whole):
    parts, _ = whole
    names = parts["train"].features["label"].names
    assert len(names) >= 10
    assert set(names) <= set(PACKAGES)
    assert sum(len(rows) for rows in parts.values()) > 8000
    assert set(parts["train"]["label"]) == set(range(len(names)))
    assert 0.05 < len(parts["test"]) / len(parts["train"]) < 0.2
    assert 0.05 < len(parts["validation"]) / len(parts["train"]) < 0.2


@pytest.mark.slow
def test_no_text_names_a_package(whole):
    parts, _ = whole
    names = re.compile("|".join(re.escape(name) for known in PACKAGES.values() for name in known), re.IGNORECASE)
    for rows in parts.values():
        assert not [text for text in rows["text"] if names.search(text)]


@pytest.mark.slow
def test_no_text_stands_in_two_parts_nor_twice_in_one(whole):
    parts, _ = whole
    seen = [" ".join(text.lower().split()) for rows in parts.values() for text in rows["text"]]
    assert len(seen) == len(set(seen))


@pytest.mark.slow
def test_the_second_call_reads_what_the_first_one_kept(whole, monkeypatch):
    parts, folder = whole
    monkeypatch.setattr(offline_data, "_read", lambda *_: pytest.fail("read again"))
    again = offline_dataset(folder)
    assert {part: rows[:] for part, rows in again.items()} == {part: rows[:] for part, rows in parts.items()}
    assert len(list(folder.iterdir())) == 1


def test_rows_are_docstrings_of_modules_classes_and_functions_wherever_they_stand(site, tmp_path):
    site(
        "alpha",
        '"""The module says something here."""\nclass C:\n    """The class says something here."""\n    def f(self):\n        if 1:\n            async def g():\n                """The inner function says something."""\n',
    )
    site(
        "beta",
        'try:\n    def f():\n        """A function in a try statement."""\nexcept E:\n    def f():\n        """A function in its except clause."""\nx = """a string that is no docstring"""\n',
    )
    assert texts(offline_dataset(tmp_path / "cache", packages=["alpha", "beta"])) == {
        "The module says something here.": "alpha",
        "The class says something here.": "alpha",
        "The inner function says something.": "alpha",
        "A function in a try statement.": "beta",
        "A function in its except clause.": "beta",
    }


def test_a_repeat_is_kept_once_and_a_shared_text_not_at_all(site, tmp_path):
    site(
        "alpha",
        '"""The same words stand twice here."""\ndef f():\n    """the SAME words\n    stand twice here."""\ndef g():\n    """Both packages say this very thing."""\n',
    )
    site("beta", '"""Both packages say  this very thing."""\ndef f():\n    """Only one of them says this."""\n')
    assert texts(offline_dataset(tmp_path / "cache", packages=["alpha", "beta"])) == {
        "The same words stand twice here.": "alpha",
        "Only one of them says this.": "beta",
    }


def test_short_docstrings_tests_and_files_that_do_not_parse_are_left_out(site, tmp_path):
    site("alpha", '"""Too short to tell."""\ndef f():\n    """Long enough to tell them apart."""\n')
    site("alpha", '"""A test module is not read here."""', "tests/test_alpha.py")
    site("alpha", 'print "an old module that does not parse"', "old.py")
    site("alpha", b'"""Null bytes do not parse either.\x00"""', "null.py")
    site("alpha", b'# -*- coding: latin-1 -*-\n"""A caf\xe9 in another encoding is read."""', "latin.py")
    site("beta", '"""It has a docstring of its own."""')
    assert set(texts(offline_dataset(tmp_path / "cache", packages=["alpha", "beta"]))) == {
        "Long enough to tell them apart.",
        "A café in another encoding is read.",
        "It has a docstring of its own.",
    }


def test_a_text_stays_in_its_part_whatever_else_is_installed(tmp_path):
    two = offline_dataset(tmp_path, source_bytes=200_000, packages=["numpy", "torch"])
    three = offline_dataset(tmp_path, source_bytes=200_000, packages=["numpy", "scipy", "torch"])
    for part in two:
        others = {text for other in three if other != part for text in three[other]["text"]}
        assert not others & set(two[part]["text"])


def test_the_seed_chooses_the_files(tmp_path):
    options = {"source_bytes": 200_000, "packages": ["numpy", "torch"]}
    first, again, other = (offline_dataset(tmp_path / str(i), seed=seed, **options) for i, seed in enumerate((0, 0, 1)))
    assert texts(first) == texts(again)
    assert texts(first) != texts(other)


def test_more_source_gives_more_rows(tmp_path):
    few, many = (
        len(texts(offline_dataset(tmp_path, source_bytes=size, packages=["numpy", "torch"])))
        for size in (100_000, 400_000)
    )
    assert 0 < few < many


def test_a_changed_package_is_read_anew(site, tmp_path):
    site("alpha", '"""Alpha says one thing at first."""')
    site("beta", '"""Beta says the same all along."""')
    offline_dataset(tmp_path / "cache", packages=["alpha", "beta"])
    site("alpha", '"""It says another thing after that."""')
    assert "It says another thing after that." in texts(offline_dataset(tmp_path / "cache", packages=["alpha", "beta"]))


def test_an_absent_package_is_left_out(site, tmp_path, monkeypatch):
    site("alpha", '"""Alpha is here and says so."""')
    site("beta", '"""Beta is here as well, too."""')
    monkeypatch.setitem(PACKAGES, "absent_package", ("absent_package",))
    parts = offline_dataset(tmp_path / "cache", packages=["alpha", "beta", "absent_package"])
    assert parts["train"].features["label"].names == ["alpha", "beta"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"packages": ["numpy", "cobol"]},
            r"packages=\['cobol'\] are not known here; choose from datasets, .*PACKAGES",
        ),
        ({"packages": ["numpy"]}, r"Of numpy only numpy is installed.*needs two classes.*--train_file"),
        ({"source_bytes": 0}, r"source_bytes=0 reads nothing; give a number above 0"),
    ],
)
def test_refusals_name_the_fix(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        offline_dataset(tmp_path / "cache", **options)
    assert not (tmp_path / "cache").exists()


def test_the_default_folder_is_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    offline_dataset(source_bytes=50_000, packages=["numpy", "torch"])
    assert len(list((tmp_path / "xdg" / "hf_trainplus").glob("docstrings-*.parquet"))) == 1
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    offline_dataset(source_bytes=50_000, packages=["numpy", "torch"])
    assert len(list((tmp_path / "home" / ".cache" / "hf_trainplus").iterdir())) == 1


def test_a_writer_that_dies_leaves_no_half_file_behind_the_name(tmp_path, monkeypatch):
    def die(_table, path):
        Path(path).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(pq, "write_table", die)
    with pytest.raises(OSError, match="disk full"):
        offline_dataset(tmp_path, source_bytes=50_000, packages=["numpy", "torch"])
    monkeypatch.undo()
    assert len(offline_dataset(tmp_path, source_bytes=50_000, packages=["numpy", "torch"])["train"]) > 0


def test_reading_imports_none_of_the_packages(tmp_path):
    code = (
        "import sys, offline_data; before = set(sys.modules)\n"
        f"offline_data.offline_dataset({str(tmp_path)!r}, source_bytes=50_000)\n"
        "print(sorted({m.partition('.')[0] for m in set(sys.modules) - before} & set(offline_data.PACKAGES)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(RECIPES)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=200
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A NumPy array", "A [package] array"),
        ("np.asarray and (pd) and inputs, snps", "[package].asarray and ([package]) and inputs, snps"),
        ("PyTorchModel, TORCH_LOGS", "[package]Model, [package]_LOGS"),
        ("scikit-learn's\n  estimators", "[package]'s estimators"),
        ("Hugging Face, huggingface", "[package], [package]"),
        ("", ""),
    ],
)
def test_names_are_masked(text, expected):
    assert masked(text) == expected
