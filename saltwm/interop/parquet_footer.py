"""What a Parquet file declares: rows, values and bytes, read from the footer itself.

pyarrow tells the same, but a damaged footer ends the whole process there: an exception of its C++ that nobody catches.
The footer is a struct in Thrift's compact form. Numbers of fields are those of the format's own parquet.thrift.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltwm.disk import durable
from saltwm.ground import budget
from saltwm.ground.errors import DamagedError

MAGIC = b"PAR1"
MOST_BITS = 70
"""Of a number in seven bits a byte."""
TRUE, FALSE, BYTE, INTEGERS, DOUBLE, BINARY, LISTS, STRUCT = 1, 2, 3, (4, 5, 6), 7, 8, (9, 10), 12
"""Kinds of values."""


@dataclass(frozen=True)
class Declared:
    """What reading the file would take."""

    rows: int
    values: int
    """In all columns, those of lists included."""
    packed_bytes: int
    """Of all columns, unpacked; a value that is repeated counts once."""
    wide_bytes: int
    """Of values that all have one length, as arrays hold them."""


def declared(file: Path) -> Declared:
    """What the footer says; DamagedError if it is none."""
    try:
        return _declared(_Thrift(_footer(file)).struct())
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, OSError, RecursionError) as error:
        raise DamagedError(f"{file}: not a readable Parquet file ({type(error).__name__}: {error})") from error


def _footer(file: Path) -> bytes:
    """The bytes before the last eight, which are its length and a magic word."""
    with durable.open_input(file) as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - 8))
        end = opened.read(8)
        length = int.from_bytes(end[:4], "little")
        if end[4:] != MAGIC or length + 8 > size:
            raise ValueError("its last bytes are not those of one")
        budget.require(file, "its footer", 100 * length)
        opened.seek(size - 8 - length)
        return opened.read(length)


def _declared(footer: dict[int, Any]) -> Declared:
    lengths = [element.get(2, 0) for element in footer[2] if 5 not in element]  # columns are schema's leaves
    groups = footer[4]
    values, wide = 0, 0
    for group in groups:
        for length, column in zip(lengths, group[1], strict=True):
            values += _count(column[3][5])
            wide += _count(length) * _count(column[3][5])
    return Declared(_count(footer[3]), values, sum(_count(group[2]) for group in groups), wide)


def _count(number: int) -> int:
    if number < 0:
        raise ValueError(f"a count of {number}")
    return number


class _Thrift:
    """A reader of the compact form: structs as dicts by field number."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def struct(self) -> dict[int, Any]:
        """The struct that begins here."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            fields[number] = self._value(head & 15)
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind == BYTE:
            return self._byte()
        if kind in INTEGERS:
            return self._signed()
        if kind in (DOUBLE, BINARY):
            return self._bytes(8 if kind == DOUBLE else self._unsigned())
        if kind in LISTS:
            return self._list()
        if kind == STRUCT:
            return self.struct()
        raise ValueError(f"a value of the unknown kind {kind}")

    def _list(self) -> list[Any]:
        head = self._byte()
        count, kind = head >> 4, head & 15
        count = self._unsigned() if count == 15 else count
        kind = BYTE if kind in (TRUE, FALSE) else kind  # here each takes a byte, so that the data bound the list
        return [self._value(kind) for _ in range(count)]

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, count: int) -> bytes:
        if count > len(self._data) - self._at:
            raise ValueError(f"{count} bytes beyond its end")
        self._at += count
        return self._data[self._at - count : self._at]

    def _unsigned(self) -> int:
        number = 0
        for shift in range(0, MOST_BITS, 7):
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise ValueError("a number without an end")

    def _signed(self) -> int:
        number = self._unsigned()
        return (number >> 1) ^ -(number & 1)
