"""The stand-in for a vLLM server with its hidden-state connector, as a program to be killed.

It notes each row that it is asked for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path

from draftmill_api.jobconfig import JobModel
from draftmill_jobs.model.facts import read_model
from tests.support.states_server import StatesServer, Trouble


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves until it is killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--staging", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--asked", type=Path, required=True, help="gets a line of token ids for each row")
    parser.add_argument("--late", action="store_true", help="write half of the files after the answer")
    asyncio.run(_serve(parser.parse_args(arguments)))


async def _serve(chosen: argparse.Namespace) -> None:
    facts = read_model(JobModel(name="tiny", path=str(chosen.model))).facts
    asked = os.open(chosen.asked, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def after_a_note(ids: Sequence[int], number: int) -> Trouble | None:
        del number
        os.write(asked, json.dumps(list(ids)).encode() + b"\n")
        return Trouble.SLOW_WRITE if chosen.late and sum(ids) % 2 else None

    server = StatesServer(chosen.model, facts, chosen.staging, port=chosen.port)
    server.trouble = after_a_note
    async with server:
        await asyncio.Event().wait()


if __name__ == "__main__":
    main()
