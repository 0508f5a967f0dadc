"""The servers of an evaluation: the target alone, and the target with the drafter that was trained."""

from __future__ import annotations

from typing import Final

from draftmill_api.trainjob import Served
from draftmill_api.v1alpha1.evaluation import Evaluation
from draftmill_api.v1alpha1.shared import Engine, Model
from draftmill_api.v1alpha1.trainstatus import TrainPlan
from draftmill_operator.render import engines
from draftmill_operator.render.engines import vllm
from draftmill_operator.render.engines.flags import Drafting
from draftmill_operator.render.volumes import data_path, model_path
from draftmill_operator.render.workload import Sidecar
from draftmill_operator.run import Role

SERVED: Final = {Role.EVALUATE_PLAIN: Served.PLAIN, Role.EVALUATE_DRAFT: Served.DRAFTING}
"""Which server each step of an evaluation asks."""


def evaluation_servers(
    model: Model, evaluation: Evaluation, plan: TrainPlan, output: str
) -> dict[Role, Sidecar]:
    """The server beside each step of an evaluation; on CPU vLLM compiles nothing, neither time.

    Args:
        model: The target.
        evaluation: How it is served.
        plan: Where the drafter for each engine is.
        output: The training's folder, below the data volume.
    """
    server = evaluation.server
    folder = plan.vllm if server.engine is Engine.VLLM else plan.sglang
    uncompiled = server.engine is Engine.VLLM and server.gpus == 0

    def beside(drafting: Drafting | None) -> Sidecar:
        command = engines.command(model, model_path(model), server, drafting, uncompiled=uncompiled)
        return Sidecar(
            server,
            tuple(command),
            env=vllm.UNCOMPILED if uncompiled else {},
            reads_data=drafting is not None,
        )

    return {
        Role.EVALUATE_PLAIN: beside(None),
        Role.EVALUATE_DRAFT: beside(Drafting(data_path(f"{output}/{folder}"), evaluation.draft_tokens)),
    }
