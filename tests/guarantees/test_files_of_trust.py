"""Ledgers, accounts and memories of cohorts are their owner's own files, and no cell of an export is a formula."""

import csv
import io
import json
import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from multicentre.cli import app
from multicentre.core import storage
from multicentre.core import storage as files
from multicentre.core.noise_plan import Noise
from multicentre.core.storage import check_owner_writes_alone, held, read_regular, write_atomically
from multicentre.errors import ConfigurationError, IntegrityError
from multicentre.privacy.accountant import cost_of
from multicentre.privacy.budget import Account
from multicentre.privacy.cohort_memory import CohortMemory
from multicentre.privacy.guard import Guard
from multicentre.privacy.ledger import Ledger, ledger_as_csv, read_ledger, repair_ledger, verify_ledger
from multicentre.privacy.policy import Policy
from multicentre_sites.deployment.approvals import approve, read_approvals
from multicentre_sites.deployment.new_site_folder import make_site
from multicentre_sites.deployment.proposals import recognise
from multicentre_sites.deployment.site_folder import read_site
from multicentre_sites.flower.records import Memory

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes and links as on POSIX systems")
FORMULAS = [
    "\uff1d1+1",
    "\u22127+8",
    "porto;=1",
    "=1+1",
    "+1",
    "-7+8",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "porto\r=1",
    '=HYPERLINK("http://x","y")',
]
STARTS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\u2212")
COST = cost_of(Noise("gaussian", {"sums": 100.0}))


@pytest.fixture
def target(tmp_path):
    """Return a file that somebody would have others write to or read."""
    path = tmp_path / "elsewhere" / "target"
    path.parent.mkdir()
    path.write_text("as it was")
    return path


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "site"
    path.mkdir(mode=0o700)
    return path


def link(path, target):
    path.symlink_to(target)
    return path


def refused(action, kind=IntegrityError, said="a symbolic link"):
    with pytest.raises(kind, match=said):
        action()


def test_a_ledger_is_not_opened_through_a_link(folder, target):
    path = link(folder / "ledger.jsonl", target)
    for action in (Ledger, lambda at: list(read_ledger(at)), verify_ledger, repair_ledger):
        refused(lambda action=action: action(path))
    assert target.read_text() == "as it was"


def test_a_link_that_takes_a_ledgers_place_later_is_not_written_through(folder, target):
    path = folder / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.append("release", {})
    path.unlink()
    link(path, target)
    refused(lambda: ledger.append("release", {}))
    assert target.read_text() == "as it was"
    dangling = Ledger(folder / "other.jsonl")
    link(folder / "other.jsonl", target.with_name("absent"))
    refused(lambda: dangling.append("release", {}))
    assert not target.with_name("absent").exists()


def test_a_link_that_appears_between_check_and_opening_is_not_followed(folder, target, monkeypatch):
    path = link(folder / "ledger.jsonl", target)
    checks = iter([False])
    monkeypatch.setattr(Path, "is_symlink", lambda self: next(checks, True))
    refused(lambda: read_regular(path, "ledger"))


def test_neither_pipes_nor_devices_are_ledgers(folder):
    pipe = folder / "ledger.jsonl"
    os.mkfifo(pipe)
    refused(lambda: list(read_ledger(pipe)), said="a pipe, a device or a folder")
    refused(lambda: Ledger(folder), said="a pipe, a device or a folder")


def test_an_account_is_not_opened_through_a_link(folder, target):
    path = folder / "account.jsonl"
    link(path, target)
    refused(lambda: Account(1.0, 1e-5, path))
    path.unlink()
    Account(1.0, 1e-5, path).charge(COST, {})
    head = folder / "account.jsonl.head"
    head.rename(target.with_name("head"))
    link(head, target.with_name("head"))
    refused(lambda: Account(1.0, 1e-5, path))
    head.unlink()
    lock = folder / "account.jsonl.lock"
    lock.unlink()
    link(lock, target)
    refused(lambda: Account(1.0, 1e-5, path).charge(COST, {}))
    assert target.read_text() == "as it was"


def test_a_memory_of_cohorts_is_not_opened_through_a_link(folder, target):
    refused(lambda: CohortMemory(link(folder / "cohorts", target.parent)))
    memory = CohortMemory(folder / "memory")
    memory.remember("sums", memory.fingerprints(["a", "b"]))
    for name in ("key", "answered.json"):
        file = folder / "memory" / name
        moved = file.rename(target.with_name(name))
        link(file, moved)
        refused(lambda: CohortMemory(folder / "memory"))
        file.unlink()
        moved.rename(file)
    CohortMemory(folder / "memory")


@pytest.mark.parametrize("writers", [0o020, 0o002], ids=["group", "others"])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_file_that_others_may_change_is_refused(folder, writers, what, monkeypatch):
    monkeypatch.setattr(files, "_is_private", lambda group, owner: False)
    ledger, account, cohorts = folder / "ledger.jsonl", folder / "account.jsonl", folder / "cohorts"
    Ledger(ledger).append("release", {})
    Account(1.0, 1e-5, account).charge(COST, {})
    CohortMemory(cohorts)
    for opened, path in (
        (lambda: Ledger(ledger), ledger),
        (lambda: Account(1.0, 1e-5, account), account),
        (lambda: Guard(Policy(epsilon=1.0, account=str(account)), Ledger()), account),
        (lambda: CohortMemory(cohorts), cohorts / "key"),
    ):
        opened()
        changed = path if what == "file" else path.parent
        before = stat.S_IMODE(changed.stat().st_mode)
        changed.chmod(before | writers)
        refused(opened, ConfigurationError, f"the {what} of .* must be writable by its owner only; got mode")
        changed.chmod(before)
        opened()


@pytest.mark.parametrize("writers", [0o020, 0o002], ids=["group", "others"])
def test_settings_and_approvals_that_others_may_change_are_refused(tmp_path, writers, monkeypatch):
    monkeypatch.setattr(files, "_is_private", lambda group, owner: False)
    site = make_site("lyon", tmp_path / "lyon")
    approvals = site.folder / "approved"
    approve(approvals, recognise("ab" * 32), site.card)
    for read, path in (
        (lambda: read_site(site.folder), site.folder / "site.toml"),
        (lambda: read_approvals(approvals), approvals / "approvals.json"),
    ):
        read()
        before = stat.S_IMODE(path.stat().st_mode)
        path.chmod(before | writers)
        refused(read, ConfigurationError, "must be writable by its owner only; got mode")
        path.chmod(before)
        read()


def test_settings_and_approvals_are_not_read_through_a_link(tmp_path, target):
    site = make_site("lyon", tmp_path / "lyon")
    approvals = site.folder / "approved"
    approve(approvals, recognise("ab" * 32), site.card)
    for read, path in (
        (lambda: read_site(site.folder), site.folder / "site.toml"),
        (lambda: read_approvals(approvals), approvals / "approvals.json"),
    ):
        moved = path.rename(target.with_name(path.name))
        link(path, moved)
        refused(read)
        path.unlink()
        moved.rename(path)
        read()


def test_the_error_says_what_to_run(folder):
    path = folder / "my ledger.jsonl"
    Ledger(path).append("release", {})
    path.chmod(0o666)
    with pytest.raises(ConfigurationError) as caught:
        Ledger(path)
    assert f"chmod go-w '{path}'" in caught.value.hint


def test_a_folder_of_the_owners_own_group_is_accepted(folder, monkeypatch):
    folder.chmod(0o770)
    monkeypatch.setattr(files, "_is_private", lambda group, owner: True)
    check_owner_writes_alone(folder / "ledger.jsonl", "ledger")
    folder.chmod(0o772)
    with pytest.raises(ConfigurationError):
        check_owner_writes_alone(folder / "ledger.jsonl", "ledger")


def test_files_that_the_package_makes_pass_its_own_check_under_any_mask(tmp_path):
    before = os.umask(0)
    try:
        ledger = Ledger(tmp_path / "a" / "ledger.jsonl")
        ledger.append("release", {})
        Account(1.0, 1e-5, tmp_path / "b" / "account.jsonl").charge(COST, {})
        memory = CohortMemory(tmp_path / "c" / "cohorts")
        memory.remember("sums", memory.fingerprints(["a"]))
    finally:
        os.umask(before)
    tmp_path.chmod(0o700)
    (tmp_path / "c").chmod(0o700)  # made with the mask of whoever made it, not by the package
    Ledger(tmp_path / "a" / "ledger.jsonl")
    Account(1.0, 1e-5, tmp_path / "b" / "account.jsonl")
    CohortMemory(tmp_path / "c" / "cohorts")


def test_temporary_files_have_names_that_nobody_can_lay_a_link_under(folder, target, monkeypatch):
    seen = []
    honest = storage.tempfile.mkstemp
    monkeypatch.setattr(
        storage.tempfile, "mkstemp", lambda **told: seen.append(honest(**told)) or (seen[-1][0], seen[-1][1])
    )
    for name in (".account.new", ".account.tmp", "account.tmp", ".account"):
        link(folder / name, target)
    for _ in range(2):
        write_atomically(folder / "account", b"new")
    Memory(folder / "account").keep(node_id=7)
    names = [name for _, name in seen]
    assert len(set(names)) == len(names) == 3
    assert target.read_text() == "as it was"
    path = link(folder / "linked", target)
    write_atomically(path, b"new")
    assert not path.is_symlink()
    assert target.read_text() == "as it was"


def test_an_agents_memory_is_not_written_through_a_link(folder, target):
    link(folder / ".memory.new", target)
    Memory(folder / "memory").keep(node_id=7)
    assert target.read_text() == "as it was"
    assert Memory.open(folder / "memory").node_id == 7


def test_a_lock_is_not_taken_through_a_link(folder, target):
    lock = link(folder / "lock", target)
    with pytest.raises(IntegrityError, match="symbolic link"), held(lock):
        pass


@pytest.mark.parametrize("formula", FORMULAS)
def test_no_cell_of_an_export_is_a_formula(formula, tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    texts = dict.fromkeys(("study", "method", "step", "protection", "reason"), formula)
    field = {"field": formula, "shape": [2, 3], "bytes": 48, "records": 30, "patients": 30}
    ledger.append("release", {**texts, "fields": [field], "epsilon": 0.5})
    ledger.append(formula, texts)
    printed = CliRunner().invoke(app, ["ledger", "export", str(path), f"--site={formula}"]).stdout
    rows = [*csv.reader(io.StringIO(ledger_as_csv(ledger.entries))), *csv.reader(io.StringIO(printed))]
    texts = [cell for row in rows for cell in row if not _is_number(cell)]
    # In both tables six texts in each of two rows; in the second the site's name too.
    assert sum(formula.split()[-1].replace(";", ",") in cell for cell in texts) == 12 + 12 + 2
    assert not [cell for cell in texts if cell.strip().startswith(STARTS) or ";" in cell or not cell.isprintable()]
    assert ",0.5," in ledger_as_csv(ledger.entries)  # numbers stay numbers
    assert json.loads(path.read_text().splitlines()[0])["step"] == formula  # the ledger itself is as it was


def _is_number(cell):
    try:
        float(cell)
    except ValueError:
        return False
    return cell not in FORMULAS
