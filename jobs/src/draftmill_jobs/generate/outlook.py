"""What is still to come: the rows under way, how long their answers will be, and when all will be over."""

from __future__ import annotations

import numpy as np

from draftmill_jobs.generate.eta import Eta, Work, remaining
from draftmill_jobs.generate.lengths import LengthModel
from draftmill_jobs.generate.order import SCOUTS
from draftmill_jobs.generate.pace import Pace
from draftmill_jobs.shared.length_bias import LengthBias
from draftmill_jobs.shared.medians import WINDOW, MedianWatch
from draftmill_jobs.shared.tally import Tally

_MODELS_AT_ONCE = 8  # models made in a second, so that many datasets cost no more than a few


class Course:
    """One row from its admission until it is settled.

    Attributes:
        sent: When the try was sent that is under way, in monotonic seconds; None while none is.
        answered: Its answer has come, and is on its way to the disk.
        tokens: Expected tokens of its answer, or those that it has.
        prompt: Bytes of its prompt.
        longest_try: Seconds of its longest try that failed.
    """

    __slots__ = ("_outlook", "answered", "longest_try", "prompt", "sent", "tokens")

    def __init__(self, outlook: DatasetOutlook, tokens: float, prompt: int) -> None:
        self._outlook = outlook
        self.sent: float | None = None
        self.answered = False
        self.tokens = tokens
        self.prompt = prompt
        self.longest_try = 0.0

    def answer(self, tokens: int, now: float) -> None:
        """The answer came."""
        sent, self.sent, self.answered = self.sent, None, True
        self._outlook.answered(self, tokens, now if sent is None else sent, now)

    def failed(self, now: float) -> None:
        """The try that is under way has failed."""
        if self.sent is not None:
            self.longest_try = max(self.longest_try, now - self.sent)
        self.sent = None

    def given_up(self) -> int:
        """The row has failed for good; tells how many tokens were to be expected of it."""
        return self._outlook.gave_up(self)

    def settled(self, now: float) -> None:
        """The row has its record or dead letter, and stands in the account."""
        self._outlook.settled(self, now)


class DatasetOutlook:
    """What is still to come of one dataset.

    Attributes:
        pace: Told how fast answers come; of all datasets together.
        expected: Tokens of an answer, as far as can be told.
        promised: Tokens of the rows that are admitted and not settled, as far as can be told.
        lengths_fell: Where the median length of answers fell by half, in a sentence; empty when it did not.

    Args:
        tally: Its account, with the lengths of the answers that have come.
        limit: Tokens at which an answer is cut off.
        cap: Its token budget; None without.
        pace: See above.
    """

    def __init__(self, tally: Tally, limit: int, cap: int | None, pace: Pace) -> None:
        self.pace = pace
        self.promised = 0.0
        self._tally, self._limit, self._cap = tally, limit, cap
        self._courses: set[Course] = set()
        self._modelled_done = tally.done
        self._bias, self._medians = LengthBias(), MedianWatch()
        self.lengths_fell = ""
        self._model = LengthModel(tally.lengths, limit, np.empty(0))
        self.expected = self._model.mean

    @property
    def admitted(self) -> int:
        """Rows that are admitted and not settled."""
        return len(self._courses)

    @property
    def under_way(self) -> int:
        """Requests under way."""
        return sum(course.sent is not None for course in self._courses)

    @property
    def length_bias(self) -> str:
        """What is wrong with the rows that failed, in a sentence; empty while nothing is."""
        return self._bias.finding(self._tally.name, self.expected)

    def answered(self, course: Course, tokens: int, sent: float, came: float) -> None:
        """An answer came, sent and come at these monotonic seconds."""
        self.promise(course, tokens)
        self.pace.answered(tokens, sent, came)
        self._bias.answered(tokens, course.prompt)
        fall = self._medians.add(tokens)
        if fall is not None:
            self.lengths_fell = (
                f"dataset {self._tally.name}: half of the last {WINDOW} answers have at most {fall.then} "
                f"tokens, of the {WINDOW} before {fall.before}; has a server gone wrong? `draftmill sample` "
                "shows answers"
            )

    def gave_up(self, course: Course) -> int:
        """A row failed for good; how long its answer would have been can be told from its longest try."""
        speed = self.pace.speed()
        so_far = min(float(self._limit), course.longest_try * (0.0 if speed is None else speed.each))
        expected = float(self._model.expected_length(np.array([so_far]))[0])
        self._bias.failed(expected, course.prompt)
        return round(expected)

    def admit(self, prompt: int) -> Course:
        """A row will be asked. Until some answers have come, its own may be as long as the limit allows."""
        course = Course(self, self.expected if self._tally.done >= SCOUTS else float(self._limit), prompt)
        self._courses.add(course)
        self.promised += course.tokens
        return course

    def promise(self, course: Course, tokens: float) -> None:
        """It is known better how long a row's answer is."""
        self.promised += tokens - course.tokens
        course.tokens = tokens

    def settled(self, course: Course, now: float) -> None:
        """A row has its record or dead letter, and stands in the account; twice as many make a new model."""
        self._courses.discard(course)
        self.promised = self.promised - course.tokens if self._courses else 0.0
        if self._tally.done >= 2 * max(1, self._modelled_done):
            self.learn(now)

    def learn(self, now: float) -> None:
        """Makes the model anew from the answers that have come and those under way."""
        self._modelled_done = self._tally.done
        sent = {course: course.sent for course in self._courses if course.sent is not None}
        so_far = self.pace.tokens_so_far(np.fromiter(sent.values(), dtype=np.float64), now)
        so_far = np.minimum(so_far, self._limit)
        self._model = LengthModel(self._tally.lengths, self._limit, so_far)
        self.expected = self._model.mean
        if self._tally.done >= SCOUTS:
            for course, tokens in zip(sent, self._model.expected_length(so_far), strict=True):
                self.promise(course, float(tokens))

    def work(self) -> Work:
        """What is left to do, as of the last model."""
        answered = [course.tokens for course in self._courses if course.answered]
        waiting = self._tally.total - self._tally.accounted - self.under_way - len(answered)
        left = None if self._cap is None else self._cap - self._tally.completion_tokens - sum(answered)
        return Work(self._model, max(0, waiting), left)


class Outlook:
    """What is still to come of all datasets, and when it will be over; `pace` tells how fast answers come."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._datasets: list[DatasetOutlook] = []
        self._next = 0
        self._eta: Eta | None = None

    def add(self, tally: Tally, limit: int, cap: int | None) -> DatasetOutlook:
        """Takes in a dataset."""
        self._datasets.append(DatasetOutlook(tally, limit, cap, self._pace))
        return self._datasets[-1]

    def alone(self, tokens_per_second: float) -> None:
        """A request got so many tokens per second while a server had no other."""
        self._pace.alone(tokens_per_second)

    def sample(self, now: float) -> None:
        """Looks anew; called about once a second while requests are sent."""
        self._pace.sample(now, sum(dataset.under_way for dataset in self._datasets))
        for _ in range(min(_MODELS_AT_ONCE, len(self._datasets))):
            self._datasets[self._next % len(self._datasets)].learn(now)
            self._next += 1
        speed = self._pace.speed()
        self._eta = None
        if speed is not None:
            self._eta = remaining([dataset.work() for dataset in self._datasets], speed)

    def clear(self) -> None:
        """Nothing is sent for a while."""
        self._pace.clear()
        self._eta = None

    @property
    def length_bias(self) -> str:
        """That rows which fail are long ones, with figures; empty when they are not."""
        return next(filter(None, (dataset.length_bias for dataset in self._datasets)), "")

    @property
    def lengths_fell(self) -> str:
        """That answers have become short, with figures; empty when they have not."""
        return next(filter(None, (dataset.lengths_fell for dataset in self._datasets)), "")

    @property
    def eta(self) -> Eta | None:
        """Time to the end at the last look; None while too few answers have come to tell."""
        return self._eta
