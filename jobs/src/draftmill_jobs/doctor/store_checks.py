"""Whether the store is what was written, of the target that is named, with numbers in it and a right mask."""

from __future__ import annotations

from draftmill_jobs.doctor.evidence import Patient
from draftmill_jobs.doctor.verdict import Finding, NotLookedAtError, Outcome
from draftmill_jobs.errors import JobRefusedError
from draftmill_jobs.model.fingerprint import fingerprint
from draftmill_jobs.train.target import text_config


def check_files(patient: Patient) -> Finding:
    """Headers of all shards, hashes of the rows that are looked at, and whether the store is complete."""
    try:
        if not patient.opened.lines:
            return Finding(Outcome.WRONG, "it has no rows")
        broken = len(patient.chosen) - len(patient.whole)
        manifest = patient.opened.manifest
    except JobRefusedError as error:
        return Finding(Outcome.WRONG, error.message)
    if broken:
        return Finding(
            Outcome.WRONG,
            f"{broken} of {len(patient.chosen)} rows have changed since they were written; "
            "`draftmill store verify` names them",
        )
    if manifest is None:
        return Finding(
            Outcome.WORTH_A_LOOK,
            "there is no manifest.json: the extraction has not been finished",
        )
    return Finding(Outcome.FINE, f"{len(patient.whole)} rows are what was written")


def check_target(patient: Patient) -> Finding:
    """The fingerprint of the target's folder, against the one that the states are of."""
    if patient.target is None:
        raise NotLookedAtError("it needs the target's folder: give --target")
    if not (patient.target / "config.json").is_file():
        raise NotLookedAtError(f"there is no model at {patient.target}: config.json is missing")
    stored, found = patient.opened.binding.model_fingerprint, fingerprint(patient.target)
    if found != stored:
        return Finding(
            Outcome.WRONG,
            f"the states are of the model {stored} with {patient.shape.layers} layers, and {patient.target} "
            f"is {found}{_layers(patient)}",
        )
    return Finding(Outcome.FINE, f"{patient.target} is the model of the states")


def _layers(patient: Patient) -> str:
    """How many layers the target has, if that can be read."""
    try:
        return f" with {text_config(patient.tensors.config).get('num_hidden_layers')}"
    except NotLookedAtError as error:
        return f", which cannot be read: {error}"


def check_numbers(patient: Patient) -> Finding:
    """NaN, infinite and zero vectors; the embedding of a token that fills up rows may be zero."""
    vectors = bad = zero = 0
    for row in patient.rows.values():
        largest = row.states.float().abs().amax(-1)  # [T, states + 1]; NaN where there is one
        vectors += largest.numel()
        bad += int((~largest.isfinite()).sum())
        is_zero = largest == 0
        if patient.shape.layer_ids[0] == 0 and not is_zero[:, 0].all():
            is_zero[:, 0] = False
        zero += int(is_zero.sum())
    if bad or zero:
        return Finding(
            Outcome.WRONG,
            f"of {vectors} vectors {bad} have NaN or infinite values and {zero} are zero",
        )
    return Finding(Outcome.FINE, f"{vectors} vectors, all finite and none zero")


def check_mask(patient: Patient) -> Finding:
    """The loss mask: nothing of the prompt, everything of the answer."""
    prompt = answer = missing = tokens = 0
    for number, row in patient.rows.items():
        first = min(patient.opened.lines[number].prompt_tokens, len(row.mask))
        prompt += int(row.mask[:first].sum())
        answer += int(row.mask[first:].sum())
        missing += int((~row.mask[first:]).sum())
        tokens += len(row.mask)
    share = f"{(prompt + answer) / tokens:.1%} of {tokens} tokens are under the mask"
    if prompt or missing:
        return Finding(
            Outcome.WRONG,
            f"{share}; {prompt} tokens of prompts are, and {missing} of answers are not",
        )
    if not answer:
        return Finding(Outcome.WRONG, f"{share}: nothing can be learned from these rows")
    return Finding(Outcome.FINE, share)
