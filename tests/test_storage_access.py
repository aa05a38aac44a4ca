"""Only the store room touches storage; the exceptions are listed here, each with its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import figrl

ROOT = Path(figrl.__file__).parent

PATH_METHODS = {
    *("open", "read_text", "read_bytes", "write_text", "write_bytes", "touch", "stat", "exists"),
    *("unlink", "rename", "replace", "mkdir", "rmdir", "glob", "rglob", "iterdir", "walk"),
    *("is_dir", "is_file", "symlink_to", "hardlink_to", "tofile"),
}
"""Methods of paths; of arrays, the one that writes a file."""

OWNERS: dict[str, set[str] | None] = {
    "os": {
        *("open", "remove", "unlink", "rename", "replace", "mkdir", "makedirs", "rmdir", "link"),
        *("listdir", "scandir", "walk", "stat", "symlink", "truncate", "utime", "statvfs"),
    },
    "np": {"load", "save", "savez", "fromfile", "memmap", "loadtxt", "savetxt"},
    "shutil": None,
    "glob": None,
}
"""Functions of modules; None for all of a module."""

EXEMPT = {
    "store": "the room of storage",
    "bench": "data and output files of benchmarks",
    "study": "data and output files of studies",
    "config.py": "YAML files of the user",
    "nightly/config.py": "YAML files of the user",
    "engine/cluster_file.py": "cluster.yaml of the user",
    "engine/fleet.py": "the code of this package, for its digest",
    "engine/security.py": "certificates of the user, and the private folder of workers",
    "engine/worker.py": "/proc",
    "ingestion/listing.py": "edge files of the user",
    "ingestion/matrices.py": "edge files of the user",
    "ingestion/opening.py": "edge files of the user",
    "serve/delivery.py": "delivers output files to the user",
    "serve/output.py": "output files of the user",
}
"""Rooms and modules that may touch files directly, and why."""


def direct_uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines and calls of a module that touch files without the store room."""
    ours = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("figrl")
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _touches_files(node, ours):
            yield node.lineno, ast.unparse(node.func)


def _touches_files(call: ast.Call, ours: set[str]) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id == "open"
    if not isinstance(call.func, ast.Attribute):
        return False
    name = call.func.attr
    owner = call.func.value.id if isinstance(call.func.value, ast.Name) else ""
    if owner in OWNERS:
        return OWNERS[owner] is None or name in OWNERS[owner]
    if owner in ours or owner[:1].isupper() or (owner, name) == ("session", "open"):
        return False
    if name == "replace":
        # Strings have a method of this name too, with two arguments.
        return len(call.args) == 1 and not call.keywords
    return name in PATH_METHODS


def modules() -> list[str]:
    """Modules of the library outside the exempt rooms, by their paths below it."""
    names = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.rglob("*.py"))]
    return [name for name in names if not name.startswith(tuple(EXEMPT))]


@pytest.mark.parametrize("module", modules())
def test_stored_data_is_reached_through_the_store_room(module):
    found = list(direct_uses(ast.parse((ROOT / module).read_text())))
    assert found == []


def test_only_one_module_knows_the_library_of_object_stores():
    """And it loads it where a URL is met, not before."""
    knows, loads = set(), set()
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text())
        name = path.relative_to(ROOT).as_posix()
        knows |= {name for node in ast.walk(tree) if _imports_obstore(node)}
        loads |= {name for node in tree.body if _imports_obstore(node)}
    assert knows == {"store/objects.py"}
    assert loads == set()


def _imports_obstore(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] == "obstore"
    return isinstance(node, ast.Import) and any(
        alias.name.partition(".")[0] == "obstore" for alias in node.names
    )


@pytest.mark.parametrize(
    "code",
    [
        "open(path)",
        "path.open()",
        "(folder / 'x').read_text()",
        "path.stat().st_size",
        "path.replace(other)",
        "os.replace(a, b)",
        "shutil.copytree(a, b)",
        "np.fromfile(path)",
        "values.tofile(path)",
        "glob.glob('*')",
    ],
)
def test_direct_access_is_found(code):
    assert list(direct_uses(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "text.replace('a', 'b')",
        "replace(options, seed=1)",
        "session.open()",
        "Session.open()",
        "os.getpid()",
        "from figrl.store import files\nfiles.exists(path)",
        "from figrl.store.files import exists\nexists(path)",
    ],
)
def test_other_calls_are_not(code):
    assert not list(direct_uses(ast.parse(code)))
