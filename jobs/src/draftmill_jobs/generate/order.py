"""Which row is asked next: of the dataset with the longest answers, the longest prompts read ahead. Pure.

What takes long has to begin early. When the last row has been admitted, places run empty one by one until the
last answer has come; the shorter those last answers, the less stands idle. (The rule "longest processing time
first": Graham, "Bounds on multiprocessing timing anomalies", SIAM J. Appl. Math. 17 (1969).)

A prompt that is only somewhat longer does not pass those before it. It says little of the answer, and prompts
of one kind tend to be of one length: one kind would come after another, and from the rows that were answered
nobody could tell how long the others take.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count
from typing import Final, Generic, TypeVar

SCOUTS: Final = 8  # first rows of every dataset that are asked before all others: how long are its answers?
_PASSES: Final = 2  # times as long as the row that came first is one that goes before it
_GONE: Final = 64  # entries of rows that have gone, before a heap is made anew without them

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of a dataset's answers.

    Attributes:
        answers: Answers that have come or are under way.
        expected: Tokens of an answer, as far as can be told.
    """

    answers: int
    expected: float


def urgency(standing: Standing) -> tuple[bool, float]:
    """The key by which the dataset is chosen whose row is asked next: the greatest goes first.

    Datasets of which next to nothing is known send a few scouts ahead; then those with long answers go first.
    """
    return standing.answers < SCOUTS, standing.expected


class LookAhead(Generic[Row]):
    """Rows of one dataset that were read but not asked yet, so that those far longer can go first."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[Row, int]] = {}  # by number, in the order in which they came
        self._by_size: list[tuple[int, int]] = []  # heap of (-size, number), those that have gone among them
        self._numbers = count()
        self.size = 0

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, row: Row, size: int) -> None:
        """Takes in a row; `size` is that of its prompt, in any unit."""
        number = next(self._numbers)
        self._rows[number] = (row, size)
        heapq.heappush(self._by_size, (-size, number))
        self.size += size

    def take(self, *, longest: bool) -> Row:
        """Gives the row that came first; or the longest, of equally long ones the first, if it is far longer.

        Raises:
            IndexError: There is none.
        """
        if not self._rows:
            raise IndexError("no row was read ahead")
        number = next(iter(self._rows))
        if longest and self._rows[self._longest()][1] >= _PASSES * self._rows[number][1]:
            number = self._longest()
        row, size = self._rows.pop(number)
        self.size -= size
        if len(self._by_size) > 2 * len(self._rows) + _GONE:
            self._by_size = [(-size, number) for number, (_, size) in self._rows.items()]
            heapq.heapify(self._by_size)
        return row

    def clear(self) -> list[Row]:
        """Drops all rows, and gives them in the order in which they came."""
        dropped = [row for row, _ in self._rows.values()]
        self._rows.clear()
        self._by_size.clear()
        self.size = 0
        return dropped

    def _longest(self) -> int:
        while (number := self._by_size[0][1]) not in self._rows:
            heapq.heappop(self._by_size)
        return number
