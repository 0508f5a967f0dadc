"""One contender's training step on one case, in a process of its own: prints its figures as JSON.

    python benchmarks/train_contenders.py draftmill --case one-row --seconds 20 --threads 2
    python benchmarks/train_contenders.py speculators --losses
    python benchmarks/train_contenders.py draftmill --profile

Every contender has the same weights, rows and loss mask, float32, its own AdamW over what it trains, and its
own best way of batching. Both rivals and the plain loop take torch's AdamW as it is; our clipping is counted.
The rivals are driven in the setting that suits a CPU: SpecForge with its plain loss function instead of a
Triton kernel under an interpreter, speculators with eager attention and loss; neither compiles anything. What
pads rows may also take them one by one (`--apart`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY), *(str(REPOSITORY / tree / "src") for tree in ("api", "jobs"))]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from benchmarks.naive_ttt import naive_losses  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

from draftmill_jobs.train.draft_config import DraftConfig  # noqa: E402
from tests.support.drafting import Bench, Row, make_bench, parity_case, random_row, small_config  # noqa: E402
from tests.support.loss_peak import DRAFT_VOCABULARY, VOCABULARY  # noqa: E402

STEPS = 3
LEARNING_RATE = 1e-5
MULTIPLIES = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "mkldnn::_linear_pointwise"}
KIMI_TOKENS = 4096
SPECULATORS_ATTENTION = os.environ.get("SPECULATORS_ATTENTION", "eager")
BATCH_TOKENS = 2048  # of packed short rows
Losses = Callable[[Sequence[Row]], list[Tensor]]
Apply = Callable[[], None]
"""Takes the gradients, which are then gone."""


def shapes() -> DraftConfig:
    return small_config(
        hidden_size=256,
        intermediate_size=688,
        heads=4,
        kv_heads=4,
        head_dim=64,
        vocab_size=2048,
        draft_vocab_size=512,
        target_hidden_size=256,
    )


def rows_of(case: str, config: DraftConfig) -> list[Row]:
    if case == "one-row":
        return [random_row(config, 512, range(20, 512), 1, torch.float32)]
    made = np.random.default_rng(0)
    lengths, rows = made.integers(100, 300, 64).tolist(), list[Row]()
    for i, length in enumerate(lengths):
        if sum(len(row.mask) for row in rows) + length > BATCH_TOKENS:
            break
        rows.append(random_row(config, length, range(20, length), i, torch.float32))
    return rows


def draftmill(bench: Bench) -> tuple[Losses, Apply]:
    # Not in the rivals' environment.
    from draftmill_jobs.train.memory import keep_freed_memory  # noqa: PLC0415
    from draftmill_jobs.train.optimiser import Optimiser  # noqa: PLC0415
    from draftmill_jobs.train.settings import Training  # noqa: PLC0415

    keep_freed_memory()
    optimiser = Optimiser(bench.drafter, Training(), {})

    def losses(rows: Sequence[Row]) -> list[Tensor]:
        return [bench.loss(rows, STEPS)]

    def apply() -> None:
        optimiser.step(LEARNING_RATE)

    return losses, apply


def naive(bench: Bench) -> tuple[Losses, Apply]:
    weights = dict(bench.drafter.named_parameters())

    def losses(rows: Sequence[Row]) -> list[Tensor]:
        return naive_losses(weights, *bench.naive(rows), steps=STEPS)

    return losses, torchs_adamw(list(weights.values()))


def speculators(bench: Bench) -> tuple[Losses, Apply]:
    from speculators import SpeculatorsConfig, VerifierConfig  # noqa: PLC0415
    from speculators.losses import resolve_loss_config  # noqa: PLC0415
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig  # noqa: PLC0415
    from speculators.proposals.greedy import GreedyTokenProposalConfig  # noqa: PLC0415

    layer = _llama(bench.config)
    layer._attn_implementation = SPECULATORS_ATTENTION
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=layer,
        draft_vocab_size=bench.config.draft_vocab_size,
        norm_before_residual=False,
        eagle_aux_hidden_state_layer_ids=[2, 4, 5],
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=STEPS)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path=None, architectures=[]),
        ),
    )
    model = Eagle3DraftModel(config=config)
    weights = {name.replace("midlayer.", "layers.0."): x for name, x in bench.drafter.state_dict().items()}
    rows = bench.target.head[torch.from_numpy(bench.vocabulary.target_ids)]
    frozen = {
        "embed_tokens.weight": bench.target.embeddings,
        "verifier_norm.weight": bench.target.norm,
        "verifier_lm_head.weight": rows,
    }
    unlike = model.load_state_dict({**weights, **frozen}, strict=False)
    assert not unlike.unexpected_keys, unlike
    model.load_vocab_mappings(torch.from_numpy(bench.vocabulary.t2d), torch.from_numpy(bench.vocabulary.d2t))
    loss_config = resolve_loss_config("kl_div", "eager")

    def losses(packed: Sequence[Row]) -> list[Tensor]:
        documents = torch.cat([torch.full((len(row.mask) - 1,), i) for i, row in enumerate(packed)])
        places = torch.cat([torch.arange(1, len(row.mask)) for row in packed])
        _, loss, metrics = model(
            hidden_states=torch.cat([row.states[:-1].flatten(1) for row in packed])[None],
            input_ids=torch.cat([row.token_ids[1:] for row in packed])[None],
            document_ids=documents[None],
            loss_mask=torch.cat([torch.from_numpy(row.mask[1:]) for row in packed])[None],
            position_ids=places[None],
            verifier_last_hidden_states=torch.cat([row.last[1:] for row in packed])[None],
            ttt_steps=STEPS,
            loss_config=loss_config,
        )
        losses.each = [float(metrics[f"loss_{k}_sum"]) for k in range(STEPS)]  # type: ignore[attr-defined]
        return [loss]

    return losses, torchs_adamw([x for x in model.parameters() if x.requires_grad])


def specforge(bench: Bench) -> tuple[Losses, Apply]:
    import specforge.algorithms.eagle3.model as theirs  # noqa: PLC0415
    from specforge.core import loss as their_losses  # noqa: PLC0415
    from specforge.modeling.draft.llama3_eagle import LlamaForCausalLMEagle3  # noqa: PLC0415

    class PlainLoss:
        apply = staticmethod(their_losses._compute_loss)

    theirs.LogSoftmaxLoss = PlainLoss
    drafter = LlamaForCausalLMEagle3(_llama(bench.config), attention_backend="sdpa")
    maps = {"d2t": torch.from_numpy(bench.vocabulary.d2t), "t2d": torch.from_numpy(bench.vocabulary.t2d)}
    embeddings = {"embed_tokens.weight": bench.target.embeddings}
    unlike = drafter.load_state_dict({**bench.drafter.state_dict(), **maps, **embeddings}, strict=False)
    assert not unlike.unexpected_keys, unlike
    drafter.freeze_embedding()
    model = theirs.OnlineEagle3Model(drafter, length=STEPS, attention_backend="sdpa")
    target = bench.target

    def losses(rows: Sequence[Row]) -> list[Tensor]:
        """Their collator pads rows to the longest, and moves ids and teacher, but not the mask, by one."""
        _, _, batch = bench.naive(rows)
        normed = torch.nn.functional.rms_norm(batch.last, target.norm.shape, target.norm, target.norm_eps)
        each, *_ = model(
            input_ids=_by_one(batch.token_ids),
            attention_mask=batch.real,
            target=_by_one(normed @ target.head.T),
            loss_mask=batch.mask[..., None].long(),
            hidden_states=batch.states,
        )
        return list(each)

    return losses, torchs_adamw([x for x in drafter.parameters() if x.requires_grad])


CONTENDERS = {f.__name__: f for f in (draftmill, naive, speculators, specforge)}


def setting(contender: str, *, apart: bool) -> str:
    """How it is driven."""
    padded = "rows one by one" if apart else "rows padded to the longest"
    own = {
        "draftmill": "packed, attention in blocks, fused loss",
        "naive": f"{padded}, one square of attention, teacher over all ids",
        "specforge": f"{padded}, sdpa attention, plain loss, uncompiled",
        "speculators": f"packed, {SPECULATORS_ATTENTION} attention, eager kl_div, uncompiled",
    }
    version = f"{contender} {metadata.version(contender)}, " if contender.startswith("spec") else ""
    return f"{version}torch {torch.__version__}: {own[contender]}"


def one_by_one(losses: Losses) -> Losses:
    """The same over rows that are not put beside each other: each counts by its tokens."""

    def apart(rows: Sequence[Row]) -> list[Tensor]:
        tokens = sum(len(row.mask) for row in rows)
        return [loss * (len(row.mask) / tokens) for row in rows for loss in losses([row])]

    return apart


def share_of_multiplies(losses: Losses, apply: Apply, rows: Sequence[Row]) -> float:
    """Of the time of a step, what matrix multiplies take: of the step that was disturbed least."""
    step, found = stepping(losses, apply, rows), list[tuple[float, float]]()
    step()
    for _ in range(20):
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            step()
        times = {event.key: event.self_cpu_time_total for event in seen.key_averages()}
        found.append((sum(times.values()), sum(times.get(name, 0.0) for name in MULTIPLIES)))
    whole, multiplies = min(found)
    return multiplies / whole


def kimi_bytes() -> dict[str, int]:
    """By its shapes: what a step of a drafter for Kimi-K2.5 takes, and one tensor over all of its ids."""
    from draftmill_jobs.train.starting import expected_shapes  # noqa: PLC0415 - not in the rivals' environment

    config = small_config(
        hidden_size=7168,
        intermediate_size=18_432,
        heads=64,
        kv_heads=64,
        head_dim=128,
        vocab_size=VOCABULARY,
        draft_vocab_size=DRAFT_VOCABULARY,
        target_hidden_size=7168,
    )
    trained = sum(math.prod(shape) for shape in expected_shapes(config).values())
    return {
        "trained": trained * 16,  # float32: weights, gradient, two moments
        "states": KIMI_TOKENS * (config.states + 1) * config.target_hidden_size * 2,
        "target_logits": KIMI_TOKENS * VOCABULARY * 4,
    }


def torchs_adamw(parameters: list[Tensor]) -> Apply:
    """As SpecForge and speculators make it."""
    optimiser = torch.optim.AdamW(parameters, lr=LEARNING_RATE)

    def apply() -> None:
        optimiser.step()
        optimiser.zero_grad()

    return apply


def stepping(losses: Losses, apply: Apply, rows: Sequence[Row]) -> Callable[[], None]:
    """One optimiser step."""

    def step() -> None:
        torch.stack(losses(rows)).sum().backward()
        apply()

    return step


def measure(losses: Losses, apply: Apply, rows: Sequence[Row], seconds: float) -> dict[str, float]:
    step, tokens = stepping(losses, apply, rows), sum(len(row.mask) for row in rows)
    step()
    times, ends = list[tuple[float, float]](), time.monotonic() + seconds
    while time.monotonic() < ends or len(times) < 3:
        wall, cpu = time.monotonic(), time.process_time()
        step()
        times.append((time.monotonic() - wall, time.process_time() - cpu))
    return {
        "steps": len(times),
        "tokens_per_second": tokens / min(wall for wall, _ in times),
        "tokens_per_cpu_second": tokens / min(cpu for _, cpu in times),
    }


def _llama(config: DraftConfig) -> object:
    from transformers import LlamaConfig  # noqa: PLC0415

    return LlamaConfig(
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_dim,
        num_hidden_layers=1,
        vocab_size=config.vocab_size,
        draft_vocab_size=config.draft_vocab_size,
        rms_norm_eps=config.rms_norm_eps,
        max_position_embeddings=config.max_position_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope.theta},
        pad_token_id=0,
        attn_implementation="eager",
    )


def _by_one(x: Tensor) -> Tensor:
    return torch.cat([x[:, 1:], torch.zeros_like(x[:, :1])], 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contender", choices=CONTENDERS)
    parser.add_argument("--case", choices=("one-row", "short-rows"), default="one-row")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--losses", action="store_true", help="print the losses of a small case instead")
    parser.add_argument("--apart", action="store_true", help="rows one by one, not padded beside each other")
    parser.add_argument(
        "--profile", action="store_true", help="print the share of the matrix multiplies instead"
    )
    parser.add_argument("--kimi", action="store_true", help="print bytes at the shapes of Kimi-K2.5 instead")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    if chosen.kimi:
        print(json.dumps(kimi_bytes()))
        return
    bench, rows = parity_case() if chosen.losses else (make_bench(shapes(), dtype=torch.float32), [])
    losses, apply = CONTENDERS[chosen.contender](bench)
    if chosen.losses:
        found = [loss.item() for loss in losses(rows)]
        print(json.dumps(getattr(losses, "each", found)))
        return
    losses = one_by_one(losses) if chosen.apart else losses
    rows = rows_of(chosen.case, bench.config)
    if chosen.profile:
        print(json.dumps({"multiplies": share_of_multiplies(losses, apply, rows)}))
        return
    found = measure(losses, apply, rows, chosen.seconds)
    print(json.dumps({**found, "setting": setting(chosen.contender, apart=chosen.apart)}))


if __name__ == "__main__":
    main()
