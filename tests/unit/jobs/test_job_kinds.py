"""One program for the jobs of every kind of run."""

from __future__ import annotations

import compileall
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmill_api.extractjob import ExtractJobConfig
from draftmill_api.jobconfig import SynthJobConfig
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.main import main
from draftmill_jobs.shared.config import load, read
from draftmill_jobs.shared.formats import byte_size


def config(folder: Path, text: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(text)
    return path


def test_the_kind_of_run_says_which_config_it_is(tmp_path: Path) -> None:
    assert read(config(tmp_path, "run: {kind: ExtractRun}")).kind is ExtractJobConfig
    assert read(config(tmp_path, "run: {kind: SynthRun}")).kind is SynthJobConfig
    assert read(config(tmp_path, "run: {name: mine}")).kind is SynthJobConfig


def test_an_unknown_kind_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(
        JobRefusedError, match=r"run\.kind is 'Other'; it is one of SynthRun, ExtractRun, DrafterTrain"
    ):
        read(config(tmp_path, "run: {kind: Other}"))


def test_a_config_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobRefusedError, match="is of an ExtractRun, and not of a SynthRun"):
        load(config(tmp_path, "run: {kind: ExtractRun}"), SynthJobConfig)


EXTRACT_RUN = """
run: {kind: ExtractRun}
model: {name: tiny, path: /models/tiny}
records: {path: /data/records}
output: {path: /data/states}
"""
SYNTH_RUN = """
model: {name: tiny, path: /models/tiny}
output: {path: /data/out}
datasets: [{name: A, source: {file: {path: /data/a.jsonl}}}]
"""


@pytest.mark.parametrize(
    ("step", "text", "sentence"),
    [
        (
            "generate",
            EXTRACT_RUN,
            "is of an ExtractRun, which has the steps plan, extract and finish, and no generate",
        ),
        (
            "extract",
            SYNTH_RUN,
            "is of a SynthRun, which has the steps plan, generate and finish, and no extract",
        ),
    ],
)
def test_a_step_of_another_kind_of_run_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, step: str, text: str, sentence: str
) -> None:
    assert main([step, "--config", str(config(tmp_path, text))]) == 2
    assert sentence in caplog.text


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield int(other.getsockname()[1])


@pytest.mark.parametrize(
    ("step", "text"),
    [
        ("plan", SYNTH_RUN),
        ("generate", SYNTH_RUN),
        ("finish", SYNTH_RUN),
        ("plan", EXTRACT_RUN),
        ("extract", EXTRACT_RUN),
        ("finish", EXTRACT_RUN),
    ],
)
def test_a_port_that_something_else_listens_on_is_refused_with_a_remedy(
    step: str, text: str, taken_port: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert main([step, "--config", str(config(tmp_path, text)), "--http-port", str(taken_port)]) == 2
    assert f"on port {taken_port}: Address already in use; choose another by --http-port" in caplog.text


@pytest.mark.parametrize("port", ["65536", "-1", "http"])
def test_what_is_no_port_is_refused(port: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--config", str(tmp_path / "job.yaml"), f"--http-port={port}"])
    assert ended.value.code == 2
    assert f"{port} is no port: a number from 0 to 65535" in capsys.readouterr().err


def test_the_connector_for_cpus_is_one_file_that_any_servers_python_can_load(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "connector"

    assert main(["install-connector", "--to", str(folder)]) == 0

    (file,) = folder.iterdir()
    assert file.name == "draftmill_cpu_connector.py"
    assert "draftmill_jobs" not in file.read_text()
    assert compileall.compile_file(file, quiet=1)


def test_a_folder_that_cannot_be_written_is_named(caplog: pytest.LogCaptureFixture) -> None:
    assert main(["install-connector", "--to", "/dev/null/x"]) == 2
    assert "cannot write draftmill_cpu_connector.py to /dev/null/x" in caplog.text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (1_207_959_552, "1.21 GB"), (828_047_360_000, "828 GB")],
)
def test_sizes_are_written_with_three_digits(size: int, text: str) -> None:
    assert byte_size(size) == text
