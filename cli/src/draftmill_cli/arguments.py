"""The command line: which commands there are, what they take, and where their code is."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

SPECFORGE, SPECULATORS = "specforge", "speculators"
JOB_STEPS = ("plan", "generate", "extract", "train", "evaluate", "finish", "install-connector")
CONVERSIONS = (SPECFORGE, "specforge-chat", SPECULATORS, "parquet", "dataset")
POD_ROLES = ("plan", "server", "worker", "evaluate-plain", "evaluate-draft", "finish")

_DESCRIPTION = """\
Draftmill turns prompts into a trained EAGLE-3 drafter on Kubernetes.

On a cluster:             get, status, watch, logs, suspend, resume, restart, retry
                          (also as `kubectl draftmill ...`)
On files:                 sample, check, convert, store verify|stat|head|export, doctor,
                          lineage, export
Without any Kubernetes:   plan, generate, extract, train, evaluate, finish --config job.yaml
"""


class Command(NamedTuple):
    """One subcommand: its line in the help, its arguments, and the module whose `run(args)` does it."""

    name: str
    summary: str
    configure: Callable[[argparse.ArgumentParser], None]
    description: str = ""
    extra: str = "cli"

    @property
    def module(self) -> str:
        """Imported only when the command is used, so that no command needs another's libraries."""
        return f"draftmill_cli.commands.{self.name}"


def parser(prog: str) -> argparse.ArgumentParser:
    """The parser of everything but the steps of `JOB_STEPS`, whose arguments belong to the jobs."""
    root = argparse.ArgumentParser(
        prog=prog, description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = root.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        sub = commands.add_parser(
            command.name, help=command.summary, description=command.description or command.summary
        )
        command.configure(sub)
        sub.set_defaults(module=command.module, extra=command.extra)
    for step, summary in zip(JOB_STEPS, _STEP_SUMMARIES, strict=True):
        commands.add_parser(step, help=summary, add_help=False)
    return root


def _cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--namespace", help="namespace; the context's own when left out")
    parser.add_argument("--context", help="context of the kubeconfig; the current one when left out")
    parser.add_argument("--kubeconfig", type=Path, help="kubeconfig file; $KUBECONFIG when left out")


def _one_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", help="its name, or with its kind: sr/NAME, er/NAME")
    _cluster(parser)


def _get(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", nargs="?", help="one run; all when left out")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="runs of all namespaces")
    parser.add_argument("-o", "--output", choices=["wide"], help="wide: further columns")
    _cluster(parser)


def _logs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--follow", action="store_true", help="go on as lines come")
    parser.add_argument("--tail", type=int, metavar="N", help="only the last N lines")
    parser.add_argument(
        "--of", choices=POD_ROLES, default="worker", help="which of the run's pods (default: worker)"
    )
    _one_run(parser)


def _sample(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="RUN-OR-FOLDER", help="an output folder, or a run whose data this machine can read"
    )
    parser.add_argument("-c", "--count", type=_from_one, default=2, help="records to show (default: 2)")
    parser.add_argument("--dataset", metavar="NAME", help="records of this dataset only")
    _cluster(parser)


def _check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the output folder of a run")


def _convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the output folder of a finished run")
    parser.add_argument("--to", required=True, choices=CONVERSIONS, help="what is written")
    parser.add_argument(
        "--output",
        required=True,
        metavar="PATH",
        type=Path,
        help="a new .jsonl or .parquet file; of a dataset, a new folder",
    )
    parser.add_argument("--dataset", metavar="NAME", help="records of this dataset only")


def _store(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    verify = actions.add_parser(
        "verify",
        help="check every row's hash; exit code 1 names shard and row of what is wrong",
        description="Read a whole store and check it against its index and manifest. Exit code: 0 when all "
        "is well, 1 when not, as in a store whose run has not been finished.",
    )
    verify.add_argument("--headers", action="store_true", help="look at sizes and headers only; fast")
    verify.add_argument(
        "--incomplete", action="store_true", help="the run need not have been finished: look at what is there"
    )
    stat = actions.add_parser("stat", help="say what a store holds")
    head = actions.add_parser("head", help="show the first rows")
    head.add_argument("-c", "--count", type=_from_one, default=10, help="rows to show (default: 10)")
    export = actions.add_parser("export", help="write the rows as another trainer reads them")
    export.add_argument("--format", required=True, choices=[SPECFORGE, SPECULATORS], help="whose layout")
    export.add_argument("--output", required=True, metavar="DIR", type=Path, help="an empty or new folder")
    export.add_argument(
        "--model", metavar="DIR", type=Path, help="specforge: the target's folder, for its final norm"
    )
    for action in (verify, stat, head, export):
        action.add_argument("folder", metavar="PATH", type=Path, help="the folder of the store")


def _from_one(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 on")
    return int(text)


def _folder(text: str) -> Path:
    folder = Path(text)
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text}")
    return folder


def _drafter(text: str) -> Path:
    folder = _folder(text)
    inner = sorted(str(path.parent) for depth in ("*", "*/*") for path in folder.glob(f"{depth}/config.json"))
    if inner and not (folder / "config.json").is_file():
        raise argparse.ArgumentTypeError(f"{text} is no drafter's own folder: name {' or '.join(inner)}")
    return folder


def _doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        required=True,
        metavar="DIR",
        type=_folder,
        help="the hidden states: the output folder of an ExtractRun",
    )
    parser.add_argument(
        "--drafter",
        required=True,
        metavar="DIR",
        type=_drafter,
        help="the drafter: the folder with its config.json, of one engine where there are two",
    )
    parser.add_argument(
        "--target",
        metavar="DIR",
        type=_folder,
        help="the target model; without it the states, the layers and the drafting are not looked at",
    )
    parser.add_argument(
        "--rows",
        metavar="N",
        type=_from_one,
        default=200,
        help="rows to look at, spread evenly (default: 200)",
    )


def _export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DRAFTER", type=Path, help="the drafter's folder for vLLM")
    parser.add_argument("--format", required=True, choices=[SPECULATORS], help="whose format")
    parser.add_argument("--target", required=True, metavar="DIR", type=Path, help="the target model's folder")
    parser.add_argument("--output", required=True, metavar="DIR", type=Path, help="an empty or new folder")
    parser.add_argument(
        "--target-name", metavar="NAME", help="what the drafter calls its target (default: the folder)"
    )
    parser.add_argument(
        "--draft-tokens",
        metavar="N",
        type=_from_one,
        default=4,
        help="tokens to draft in a cycle (default: 4)",
    )


def _lineage(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DRAFTER", type=Path, help="the folder of a drafter, or of its run")
    parser.add_argument(
        "--root",
        metavar="DIR",
        type=Path,
        action="append",
        default=[],
        help="where a volume of the runs is mounted here; may be given more than once",
    )


def _nothing(parser: argparse.ArgumentParser) -> None:
    del parser


COMMANDS = (
    Command("get", "list runs", _get, "List runs of all kinds, with the same columns as `kubectl get`."),
    Command("status", "tell everything about one run", _one_run),
    Command(
        "watch",
        "follow a run until it ends",
        _one_run,
        "Follow a run until it ends. Exit code: 0 when it Succeeded, 1 when it Failed.",
    ),
    Command(
        "logs",
        "print the log of a run's pod",
        _logs,
        "Print the log of a run's current worker, or other pod.",
    ),
    Command(
        "sample",
        "show records in readable form",
        _sample,
        "Show records, spread evenly over the files, in readable form.",
    ),
    Command(
        "check",
        "verify an output folder",
        _check,
        "Re-read an output folder as the finish step does. Exit code: 0 when all is well, 1 when not.",
        extra="jobs",
    ),
    Command(
        "convert",
        "write the answers as other programs read them",
        _convert,
        "Write the records of a finished run for SpecForge (exact token ids, or with specforge-chat its "
        "conversations), for speculators, as Parquet, or as a folder for datasets.load_from_disk. Nothing "
        "is there until all is; nothing is overwritten.",
        extra="jobs",
    ),
    Command("store", "look at a store of hidden states, or export it", _store, extra="jobs"),
    Command(
        "doctor",
        "find the stage that is wrong when a drafter is not accepted",
        _doctor,
        "Look at a store, a drafter and their target in the order in which data pass through: store, target, "
        "extraction, loss mask, draft vocabulary, export, training. The last line names the first stage that "
        "is wrong, or none. Exit code: 0 when none is wrong, 1 when one is, 2 when a folder is not there.",
        extra="train",
    ),
    Command(
        "export",
        "write a drafter in the format of another project",
        _export,
        "Write a drafter in the format of speculators, with the target's embeddings: `vllm serve` starts "
        "that folder together with the target. What is written is read and compared again.",
        extra="train",
    ),
    Command(
        "lineage",
        "follow a drafter back to its prompts",
        _lineage,
        "Follow a drafter's manifest to hidden states and answers, by hash. Exit code: 0 when the chain is "
        "whole, 1 when it breaks.",
        extra="jobs",
    ),
    Command(
        "suspend",
        "stop a run and free what it holds",
        _one_run,
        "Stop a run: its workers and servers go, its records stay, and `resume` goes on from them.",
    ),
    Command(
        "resume",
        "let a suspended or paused run go on",
        _one_run,
        "Let a suspended run, or one that its error policy has paused, go on from the records on disk.",
    ),
    Command(
        "restart",
        "start the workers of a run anew",
        _one_run,
        "Start the workers of an active run anew, from the records on disk; rows that failed in a way that "
        "may pass are asked again.",
    ),
    Command(
        "retry",
        "run a Failed run again",
        _one_run,
        "Delete and re-create a run that Failed, or whose drafter was not evaluated: it goes on from what is "
        "on disk.",
    ),
    Command("version", "print the version", _nothing),
)

_STEP_SUMMARIES = (
    "job: look at model, input and storage before anything is asked",
    "job: ask every prompt and keep the exact token ids",
    "job: store the hidden states of every row",
    "job: train a drafter on the hidden states",
    "job: replay held-out prompts with and without the drafter",
    "job: re-read the result, write summary.json and manifest.json",
    "put the hidden-state connector for vLLM on CPU into a folder",
)
