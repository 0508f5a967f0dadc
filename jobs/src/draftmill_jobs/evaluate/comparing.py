"""What two servers' answers to the same prompts have to say beside each other. Pure."""

from __future__ import annotations

from draftmill_api.drafter import AnsweredConcurrency, DrafterEvaluation, EvaluatedConcurrency, ServerAnswers
from draftmill_api.v1alpha1.trainstatus import EvaluatedRate, TrainEvaluation
from draftmill_jobs.evaluate.drafting import Drafted


def compared(plain: ServerAnswers, drafting: ServerAnswers) -> list[EvaluatedConcurrency]:
    """Of each concurrency; both were asked the same at the same ones."""
    return [_compared(*both) for both in zip(plain.answered, drafting.answered, strict=True)]


def together(found: DrafterEvaluation) -> TrainEvaluation:
    """All concurrencies as a run's status has them."""
    measured = found.measured
    cycles = sum(each.cycles for each in measured)
    accepted = sum((each.acceptance_length - 1) * each.cycles for each in measured)
    places = max(len(each.by_position) for each in measured)
    taken = [
        sum(each.by_position[place] * each.cycles for each in measured if place < len(each.by_position))
        for place in range(places)
    ]
    return TrainEvaluation(
        acceptance_length=f"{1 + (accepted / cycles if cycles else 0.0):.2f}",
        by_position=[f"{count / cycles if cycles else 0.0:.3f}" for count in taken],
        ratio=f"{max(each.ratio for each in measured):.2f}",
        cycles=cycles,
        tokens=sum(each.tokens for each in measured),
        answers=sum(each.prompts for each in measured),
        identical=sum(each.identical for each in measured),
        rates=[
            EvaluatedRate(
                concurrency=each.concurrency,
                plain=f"{each.plain_tokens_per_second:.1f}",
                drafting=f"{each.drafting_tokens_per_second:.1f}",
                ratio=f"{each.ratio:.2f}",
            )
            for each in measured
        ],
    )


def _compared(plain: AnsweredConcurrency, drafting: AnsweredConcurrency) -> EvaluatedConcurrency:
    drafted = Drafted(drafting.cycles or 0, drafting.accepted, tuple(drafting.by_position))
    before, after = _tokens_per_second(plain), _tokens_per_second(drafting)
    return EvaluatedConcurrency(
        concurrency=drafting.concurrency,
        prompts=len(plain.outputs),
        tokens=sum(map(len, drafting.outputs)),
        cycles=drafted.cycles,
        acceptance_length=drafted.length,
        by_position=list(drafted.shares),
        plain_tokens_per_second=before,
        drafting_tokens_per_second=after,
        ratio=after / before,
        identical=sum(a == b for a, b in zip(plain.outputs, drafting.outputs, strict=True)),
    )


def _tokens_per_second(answered: AnsweredConcurrency) -> float:
    return sum(map(len, answered.outputs)) / answered.seconds
