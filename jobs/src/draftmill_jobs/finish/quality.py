"""What answers look like, counted record by record in memory that hardly grows. Pure."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import accumulate, islice
from typing import Any, Final

import numpy as np

from draftmill_api.manifest import AnswerQuality, LengthBin, MedianFall
from draftmill_api.record import RecordStatus
from draftmill_jobs.shared.medians import Fall, MedianWatch

_PERCENTILES: Final = (10, 50, 90, 99)
_LONGEST_PERIOD: Final = 64  # tokens of a stretch that is repeated
_TIMES: Final = 4  # that it stands there at least,
_REPEATED: Final = 48  # and tokens that all of them have at least
_TRUNCATED: Final = {RecordStatus.TRUNCATED, RecordStatus.TRUNCATED_REASONING, RecordStatus.REPETITION}
_MOST_FALLS: Final = 16


class QualityCount:
    """Counts the records of one dataset.

    Twenty bytes of each stay: to find answers that are there twice, and to see lengths in the order in which
    the rows were asked. In the order of the files short answers come first whenever a worker starts.
    """

    def __init__(self) -> None:
        self._lengths: Counter[int] = Counter()
        self._think: Counter[str] = Counter()
        self._found: Counter[str] = Counter()
        self._hashes = array("q")
        self._seconds, self._tokens = array("q"), array("i")

    def add(self, record: dict[str, Any]) -> None:
        """Takes in one record, as its line has it.

        Raises:
            ValueError: It does not say when it was made.
        """
        ids, status = record["output_ids"], RecordStatus(record["status"])
        made = datetime.fromisoformat(record["created"]).timestamp()
        self._seconds.append(int(made - record["latency_s"]))
        self._tokens.append(len(ids))
        self._lengths[len(ids)] += 1
        self._think[record["think"]] += 1
        self._hashes.append(_hash(ids))
        self._found["truncated"] += status in _TRUNCATED
        self._found["malformed"] += status is RecordStatus.MALFORMED
        self._found["repeated_tails"] += has_repeated_tail(ids)
        self._found["empty"] += not ((record["reasoning"] or "") + (record["content"] or "")).strip()
        self._found["replacement_characters"] += "\ufffd" in record["text"]

    def result(self, name: str) -> AnswerQuality:
        """What was counted, for a dataset of that name."""
        records, found = self._lengths.total(), self._found
        tokens = sum(length * count for length, count in self._lengths.items())
        return AnswerQuality(
            name=name,
            records=records,
            mean=round(tokens / records, 1) if records else 0.0,
            percentiles={str(share): self._percentile(share) for share in _PERCENTILES} if records else {},
            longest=max(self._lengths, default=0),
            histogram=self._histogram(),
            truncated=found["truncated"],
            truncated_percent=_percent(found["truncated"], records),
            repeated_tails=found["repeated_tails"],
            repeated_tails_percent=_percent(found["repeated_tails"], records),
            empty=found["empty"],
            replacement_characters=found["replacement_characters"],
            think=dict(sorted(self._think.items())),
            malformed=found["malformed"],
            duplicates=records - len(np.unique(np.frombuffer(self._hashes, dtype=np.int64)))
            if records
            else 0,
            median_falls=[
                MedianFall(after=fall.after, before=fall.before, then=fall.then) for fall in self._falls()
            ],
        )

    def _percentile(self, share: int) -> int:
        """The shortest length that so many percent of the answers do not exceed."""
        lengths = sorted(self._lengths)
        wanted = share * self._lengths.total() / 100
        sums = accumulate(self._lengths[length] for length in lengths)
        return next(length for length, so_far in zip(lengths, sums, strict=True) if so_far >= wanted)

    def _falls(self) -> Iterator[Fall]:
        watch, tokens = MedianWatch(), np.frombuffer(self._tokens, dtype=np.int32)
        seconds, hashes = (np.frombuffer(each, dtype=np.int64) for each in (self._seconds, self._hashes))
        order = np.lexsort((hashes, seconds))  # those of one second in an order that no length decides
        falls = (watch.add(int(tokens[record])) for record in order)
        return islice((fall for fall in falls if fall is not None), _MOST_FALLS)

    def _histogram(self) -> list[LengthBin]:
        """Each bin goes up to twice as many tokens as the one before."""
        bins: Counter[int] = Counter()
        for length, count in self._lengths.items():
            bins[1 << max(0, length - 1).bit_length()] += count
        return [LengthBin(up_to=up_to, answers=bins[up_to]) for up_to in sorted(bins)]


def has_repeated_tail(ids: Sequence[int]) -> bool:
    """Whether an answer ends with one stretch of at most 64 tokens, again and again.

    It stands there at least four times, and 48 tokens long, with or without a token after it that stops.
    """
    return _ends_in_repetition(ids, len(ids)) or _ends_in_repetition(ids, len(ids) - 1)


def _ends_in_repetition(ids: Sequence[int], end: int) -> bool:
    for period in range(1, _LONGEST_PERIOD + 1):
        length = max(_REPEATED, _TIMES * period) - period
        start = end - length
        if start < period:
            return False
        if ids[end - 1] == ids[end - 1 - period] and ids[start:end] == ids[start - period : end - period]:
            return True
    return False


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


def _hash(ids: Sequence[int]) -> int:
    digest = hashlib.blake2b(np.asarray(ids, dtype=np.int64).tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
