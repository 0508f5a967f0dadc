"""The servers of an evaluation: the target alone, and the target with the drafter that was trained."""

from __future__ import annotations

from typing import Final

from draftmill_api.trainjob import Served
from draftmill_api.v1alpha1.evaluation import Evaluation
from draftmill_api.v1alpha1.shared import Engine, Model
from draftmill_api.v1alpha1.trainstatus import TrainPlan
from draftmill_operator.render import engines
from draftmill_operator.render.engines.flags import Drafting
from draftmill_operator.render.volumes import data_path, model_path
from draftmill_operator.render.workload import Sidecar
from draftmill_operator.run import Role

SERVED: Final = {Role.EVALUATE_PLAIN: Served.PLAIN, Role.EVALUATE_DRAFT: Served.DRAFTING}
"""Which server each step of an evaluation asks."""


def evaluation_servers(
    model: Model, evaluation: Evaluation, plan: TrainPlan, output: str
) -> dict[Role, Sidecar]:
    """The server beside each step of an evaluation.

    Args:
        model: The target.
        evaluation: How it is served.
        plan: Where the drafter for each engine is.
        output: The training's folder, below the data volume.
    """
    folder = plan.vllm if evaluation.server.engine is Engine.VLLM else plan.sglang
    drafting = Drafting(data_path(f"{output}/{folder}"), evaluation.draft_tokens)
    path, server = model_path(model), evaluation.server
    return {
        Role.EVALUATE_PLAIN: Sidecar(server, tuple(engines.command(model, path, server))),
        Role.EVALUATE_DRAFT: Sidecar(
            server, tuple(engines.command(model, path, server, drafting)), reads_data=True
        ),
    }
