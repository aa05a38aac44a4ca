"""What the operating system refuses: one place says it in figrl's words, with an exit code."""

from __future__ import annotations

import errno
import os
import pickle
import resource

import numpy as np
import pyarrow as pa
import pytest

from figrl.engine.session import Session
from figrl.engine.stage import Block, Stage
from figrl.errors import BadInputError, FigrlError, system_error
from figrl.store.files import put, save_array
from tests.staging import run_stage

CODES = {
    errno.ENOSPC: 5,
    errno.EDQUOT: 5,
    errno.EFBIG: 5,
    errno.ENOMEM: 5,
    errno.EMFILE: 5,
    errno.EROFS: 2,
    errno.EACCES: 2,
    errno.EPERM: 2,
    errno.ENOTDIR: 2,
    errno.ENAMETOOLONG: 2,
    errno.EIO: 3,
}


@pytest.mark.parametrize("number", CODES, ids=errno.errorcode.get)
def test_each_has_a_code_the_path_and_a_remedy(number):
    text = os.strerror(number)
    for error in (
        OSError(number, text, "/store/a"),
        OSError(f"Error writing bytes to file. Detail: [errno {number}] {text}"),
        pa.ArrowInvalid(f"Could not close. Detail: [errno {number}] {text}"),
    ):
        found = system_error(error, "/store/a")
        assert found is not None
        assert found.exit_code == CODES[number]
        assert found.message.startswith("/store/a: ")
        assert f"({text}). " in found.message
        assert found.message.endswith(".")
        assert pickle.loads(pickle.dumps(found)).message == found.message


def test_other_errors_stay_as_they_are():
    for error in (FileNotFoundError(2, "No such file"), ValueError("[errno 28]"), OSError("x")):
        assert system_error(error) is None
    known = BadInputError("bad")
    known.__cause__ = OSError(errno.EACCES, "")
    assert system_error(known) is None, "it has been said better already"


def test_a_library_that_wraps_the_error_is_looked_through():
    wrapper = RuntimeError("it did not work")
    wrapper.__cause__ = OSError(errno.EDQUOT, "", "/store/a")
    found = system_error(wrapper)
    assert found is not None
    assert found.exit_code == 5
    assert isinstance(system_error(MemoryError()), FigrlError)


@pytest.mark.parametrize("write", [lambda path: put(path, bytes(9000)),
                                   lambda path: save_array(path, np.zeros(9000))])  # fmt: skip
def test_a_limit_of_the_size_of_files(tmp_path, write):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError) as caught:  # noqa: PT011
            write(tmp_path / "a")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    found = system_error(caught.value)
    assert found is not None
    assert found.exit_code == 5
    assert found.message.startswith(f"{tmp_path / 'a'}: ")
    assert list(tmp_path.iterdir()) == []


def _refused(path: str) -> None:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def test_errors_of_workers_and_of_calls_are_named(client, tmp_path):
    stage = Stage("refused", _refused, [Block("0", ("/store/a",))])
    with pytest.raises(FigrlError, match=r"^/store/a: this user may not") as caught:
        run_stage(client, tmp_path / "marks", stage)
    assert caught.value.exit_code == 2
    with pytest.raises(FigrlError, match=r"^/store/b: "), Session(client).open():
        _refused("/store/b")
