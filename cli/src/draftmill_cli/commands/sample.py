"""`draftmill sample`: a few records as a person reads them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from rich.text import Text

from draftmill_api.record import Record
from draftmill_api.v1alpha1 import SynthRun
from draftmill_cli.console import show
from draftmill_cli.errors import CliError
from draftmill_cli.records import record_files, spread


def run(args: Namespace) -> int:
    """Prints records of a folder, or of a run whose data lies on this machine."""
    folder = Path(args.source)
    if not folder.is_dir():
        folder = _folder_of_run(args)
    files = record_files(folder)
    if args.dataset:
        if args.dataset not in files:
            raise CliError(f"no records of {args.dataset} in {folder}; there are {', '.join(files)}")
        files = {args.dataset: files[args.dataset]}
    for record in taken_in_turn([spread(parts, args.count) for parts in files.values()])[: args.count]:
        show(*readable(record), "")
    return 0


def taken_in_turn(lists: list[list[Record]]) -> list[Record]:
    """The first of each list, then the second of each, ..."""
    return [record for group in zip_longest(*lists) for record in group if record is not None]


def readable(record: Record) -> Iterator[Text]:
    """A record as lines: what it is, the messages, the reasoning, the answer."""
    yield Text(f"── {record.dataset} {record.id} ", style="bold")
    yield Text(
        f"{record.status}, {record.finish_reason}, {record.prompt_tokens} prompt + "
        f"{record.completion_tokens} completion tokens, {record.latency_s:.1f} s, by {record.server}",
        style="dim",
    )
    for message in record.messages:
        yield from _part(str(message.get("role")), str(message.get("content")))
    if record.reasoning:
        yield from _part("reasoning", record.reasoning)
    yield from _part(
        "answer", "(none: it ended inside its reasoning)" if record.content is None else record.content
    )


def _part(title: str, text: str) -> Iterator[Text]:
    yield Text(f"{title}:", style="cyan")
    yield Text("\n".join(f"    {line}" for line in text.splitlines()))


def _folder_of_run(args: Namespace) -> Path:
    # Kubernetes is asked only when the argument is no folder: samples of files need no cluster.
    from draftmill_cli.cluster import connect  # noqa: PLC0415

    cluster = connect(args)
    run = cluster.run(cluster.find(args.source))
    if not isinstance(run, SynthRun):
        raise CliError(f"{args.source} is a {run.kind}; records are the output of a SynthRun")
    volume = run.spec.storage.data
    path = run.spec.output.folder(run.status.plan if run.status is not None else None)
    if volume.host_path:
        local: Path | None = Path(volume.host_path.path)
    elif volume.persistent_volume_claim:
        local = cluster.local_folder(volume.persistent_volume_claim.claim_name)
    else:
        local = None
    folder = local / path if local else None
    if folder is None or not folder.is_dir():
        raise CliError(
            f"the records of {args.source} are not on this machine: mount its data volume "
            f"and give the folder {path} in it"
        )
    return folder
