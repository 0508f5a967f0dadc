"""The model card of a drafter: what it is for, what it is made of, and what was measured. Pure."""

from __future__ import annotations

import json
from typing import Final

from draftmill_api.drafter import DrafterAcceptance, DrafterEvaluation, DrafterManifest
from draftmill_api.v1alpha1.trainstatus import Yardstick

_CARD: Final = """\
---
base_model: {name}
tags: [eagle3, speculative-decoding, draftmill]
---

# EAGLE-3 drafter for {name}

Drafts tokens for {name} ({architecture}), which a server then accepts or not.
It does not answer by itself, and changes no answer.

    vllm serve TARGET --speculative-config '{vllm}'
    python -m sglang.launch_server --model-path TARGET --speculative-algorithm EAGLE3 \\
        --speculative-draft-model-path FOLDER --speculative-num-steps {drafts} \\
        --speculative-eagle-topk 1 --speculative-num-draft-tokens {checked}

{folders}

## {measured}

## What it is made of

| | |
|---|---|
{facts}
"""
_ONE_FOLDER: Final = "This folder is for vLLM and for SGLang."
_TWO_FOLDERS: Final = """\
`{vllm}` is for vLLM and `{sglang}` for SGLang: the two count layers in different ways, and the wrong
folder gives the drafter the wrong states without a word."""
_MEASURED: Final = {
    Yardstick.ACCEPTANCE_LENGTH: """\
Simulated acceptance length: {length:.2f}

1 + accepted draft tokens / draft cycles, with the bonus token, over {cycles} cycles along the
target's answers at temperature 0 to prompts that were held out of training.""",
    Yardstick.TEACHER_AGREEMENT: """\
Teacher agreement: {length:.2f}

Counted as an acceptance length is, over {cycles} cycles along sampled answers to prompts that were held
out of training, but against the target's likeliest tokens. No server accepts by that: it is no acceptance
length.""",
}
_AT_WORK: Final = """

## On a server

Held-out prompts, answered greedily without the drafter and with it.

| requests at a time | acceptance length | by position | tokens/s without | with | ratio | same answers |
|---|---|---|---|---|---|---|
"""
_TABLE: Final = """

| draft token | accepted, of the cycles | right by itself |
|---|---|---|
"""


def model_card(manifest: DrafterManifest) -> str:
    """Markdown, with the front matter that model hubs read."""
    drafts = manifest.training.ttt_length
    assert drafts is not None  # noqa: S101 - a manifest has every setting in force
    speculative = {"method": "eagle3", "model": "FOLDER", "num_speculative_tokens": drafts}
    folders = _ONE_FOLDER if manifest.vllm == manifest.sglang else _TWO_FOLDERS
    return _CARD.format(
        name=manifest.model_name,
        architecture=manifest.model.architecture,
        vllm=json.dumps(speculative),
        drafts=drafts,
        checked=drafts + 1,
        folders=folders.format(vllm=manifest.vllm, sglang=manifest.sglang),
        measured=_measured(manifest.acceptance) + _at_work(manifest.evaluation),
        facts="\n".join(f"| {what} | {value} |" for what, value in _facts(manifest).items()),
    )


def _measured(acceptance: DrafterAcceptance | None) -> str:
    if acceptance is None:
        return "Nothing was held out, so nothing was measured"
    words = _MEASURED[acceptance.yardstick].format(length=acceptance.length, cycles=acceptance.cycles)
    shares = enumerate(zip(acceptance.by_position, acceptance.accuracy, strict=True), 1)
    return (
        words + _TABLE + "\n".join(f"| {at} | {taken:.1%} | {right:.1%} |" for at, (taken, right) in shares)
    )


def _at_work(evaluation: DrafterEvaluation | None) -> str:
    if evaluation is None:
        return ""
    rows = (
        f"| {each.concurrency} | {each.acceptance_length:.2f} | "
        f"{' '.join(f'{share:.1%}' for share in each.by_position)} | "
        f"{each.plain_tokens_per_second:.1f} | {each.drafting_tokens_per_second:.1f} | {each.ratio:.2f} | "
        f"{each.identical} of {each.prompts} |"
        for each in evaluation.measured
    )
    return _AT_WORK + "\n".join(rows)


def _facts(manifest: DrafterManifest) -> dict[str, str]:
    training, run = manifest.training, manifest.run
    return {
        "target": f"{manifest.model_name}, fingerprint `{manifest.model.fingerprint}`",
        "layers": f"{manifest.layer_ids}, {manifest.layer_convention} convention",
        "hidden states": f"`{manifest.source.path}`, of the manifest with sha256 `{manifest.source.sha256}`",
        "start": f"`{manifest.init.path}`" if manifest.init else "from scratch",
        "draft vocabulary": f"{manifest.draft_vocabulary_size:,} tokens",
        "coverage": f"{manifest.coverage:.1%} of the answers' tokens",
        "rows": f"{manifest.rows:,} trained on, {manifest.held_out_rows:,} held out, "
        f"{manifest.corrupt_rows:,} left out as corrupt",
        "training": f"{training.epochs} epochs, {manifest.tokens:,} tokens; taken after step "
        f"{manifest.steps:,}",
        "settings": f"learning rate {training.learning_rate} ({training.schedule}), training-time test of "
        f"{training.ttt_length} steps with decay {training.ttt_decay}, {training.precision}",
        "run": f"{run.namespace}/{run.name}" if run.namespace else run.name,
    }
