"""The generator of decoders: Python source for one message in one version, all nested structs inlined.

Neighbouring values of fixed size, and the length that follows them, are read with one `Struct`. `data` is bytes, or a
view of bytes where record sets are in the message: a wrong index raises IndexError and a short read `struct.error`. The
source compares lengths of strings and counts of elements with the remaining bytes, and lengths of strings with Kafka's
limit as well.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from struct import unpack_from

from kraft.protocol import primitives
from kraft.protocol.errors import ProtocolError
from kraft.protocol.schema import Array, Binary, Field, FieldType, Fixed, Fresh, Message, Structure, Text
from kraft.protocol.source import Source, has_record_sets


def build_decoder(
    of: type[Message], version: int, flexible: bool, *, is_request: bool
) -> Callable[..., tuple[object, int]]:
    """Makes `decode(buffer, position) -> (message, position behind it)`; raises ProtocolError only."""
    return _DecoderSource(version, flexible, is_request).build(of)


class _DecoderSource(Source):
    def __init__(self, version: int, flexible: bool, is_request: bool) -> None:
        super().__init__(version, flexible)
        self._is_request = is_request
        self._run: list[tuple[str, int, str]] = []
        self._unpackers: dict[str, Callable[..., tuple[object, ...]]] = {}
        self.namespace.update(
            MALFORMED=primitives.MALFORMED,
            check_elements=primitives.check_elements,
            check_string_length=primitives.check_string_length,
            ProtocolError=ProtocolError,
            check_tag_end=primitives.check_tag_end,
            not_nullable=primitives.not_nullable,
            overrun=primitives.overrun,
            read_tag=primitives.read_tag,
            read_tag_count=primitives.read_tag_count,
            skip_tagged_fields=primitives.skip_tagged_fields,
            unpack_from=unpack_from,
            varint_tail=primitives.varint_tail,
        )

    def build(self, of: type[Message]) -> Callable[..., tuple[object, int]]:
        title = f"{of.__name__} v{self.version}"
        with self.block("def decode(buffer, p):"):
            self.line(f"data = {'memoryview' if has_record_sets(of) else 'bytes'}(buffer)")
            self.line("end = len(data)")
            self.line("elements = 0")
            with self.block("try:"):
                result = self._message(of)
                self.line(f"return {result}, p")
            with self.block("except MALFORMED as error:"):
                self.line(f"raise ProtocolError(f'{title} is malformed: {{error}}') from error")
        return self.compile("decode", f"decoder of {title}")

    def _take(self, code: str, size_bytes: int, target: str) -> None:
        """Adds a value of fixed size to the run of values that one `Struct` reads."""
        self._run.append((code, size_bytes, target))

    def _flush(self) -> None:
        """Reads the run."""
        if not self._run:
            return
        size = sum(size for _, size, _ in self._run)
        targets = ", ".join(target for _, _, target in self._run)
        codes = "".join(code for code, _, _ in self._run)
        if codes == "B":
            self.line(f"{targets} = data[p]")
        else:
            unpack = self._unpackers.setdefault(codes, self.struct(codes).unpack_from)
            self.line(f"{targets}, = {self.constant('unpack', unpack)}(data, p)")
        self.line(f"p += {size}")
        self._run.clear()

    def _message(self, of: type[Message]) -> str:
        """Writes the reading of a struct; returns the expression that constructs it."""
        values: dict[str, str] = {name: self._default(field) for name, field in of.FIELDS}
        tagged = self.tagged_fields(of)
        for _, fields in tagged:
            for name, field in fields:
                values[name] = self.name("t")
                self.line(f"{values[name]} = {self._default(field)}")
        for name, field in self.fields(of):
            values[name] = self.name("v")
            self._value(field.type, self.nullable(field), values[name], f"{of.__name__}.{name}")
        if self.flexible:
            self._tagged_section(of, tagged, values)
        self._flush()
        return f"{self.constant('Class', of)}({', '.join(values.values())})"

    def _default(self, field: Field) -> str:
        if isinstance(field.default, Fresh):
            return "[]" if field.default.make is list else f"{self.constant('make', field.default.make)}()"
        return self.constant("default", field.default)

    def _tagged_section(
        self, of: type[Message], tagged: list[tuple[int, list[tuple[str, Field]]]], values: dict[str, str]
    ) -> None:
        count = self.name("n")
        self._take("B", 1, count)
        self._flush()
        with self.block(f"if {count}:"):
            if not tagged:
                self.line("p = skip_tagged_fields(data, p - 1)")
                return
            stop, tag = self.name("stop"), self.name("tag")
            self.line(f"{count}, p = read_tag_count(data, p - 1)")
            with self.block(f"for _ in range({count}):"):
                self.line(f"{tag}, p, {stop} = read_tag(data, p)")
                for index, (number, fields) in enumerate(tagged):
                    with self.block(f"{'elif' if index else 'if'} {tag} == {number}:"):
                        for name, field in fields:
                            where = f"{of.__name__}.{name}"
                            self._value(field.type, self.nullable(field), values[name], where)
                        self._flush()
                        if len(fields) > 1:
                            self.line("p = skip_tagged_fields(data, p)")
                        self.line(f"check_tag_end('{where}', p, {stop})")
                with self.block("else:"):
                    self.line(f"p = {stop}")

    def _value(self, kind: FieldType, nullable: bool, target: str, where: str) -> None:
        """Writes the reading of one value into the variable `target`."""
        match kind:
            case Fixed():
                self._take(kind.code, kind.size_bytes, target)
            case Text():
                self._sized("h", 2, nullable, target, where, "str(data[p:{q}], 'utf-8')")
            case Binary(view):
                read = "data[p:{q}]" if view else "bytes(data[p:{q}])"
                self._sized("i", 4, nullable, target, where, read)
            case Array(element):
                self._array(element, nullable, target, where)
            case Structure(of) if nullable:
                flag = self.name("n")
                self._take("b", 1, flag)
                self._flush()
                self.line(f"{target} = None")
                with self.block(f"if {flag} >= 0:"):
                    self.line(f"{target} = {self._message(of)}")
            case Structure(of):
                # The run before it is read first, so that the expression's variables exist.
                self.line(f"{target} = {self._message(of)}")

    def _length(self, code: str, size_bytes: int, nullable: bool, where: str) -> str:
        """Writes the reading of a length or count; returns its variable, negative for null."""
        length = self.name("n")
        if self.flexible:
            self._take("B", 1, length)
            self._flush()
            with self.block(f"if {length} > 127:"):
                with self.block("if data[p] < 128:"):  # two bytes, up to 16 KiB, are read without a call
                    self.line(f"{length} += (data[p] << 7) - 128")
                    self.line("p += 1")
                with self.block("else:"):
                    self.line(f"{length}, p = varint_tail(data, p, {length})")
                if code == "h":  # a string's
                    self.line(f"check_string_length('{where}', {length} - 1)")
            self.line(f"{length} -= 1")
        else:
            self._take(code, size_bytes, length)
            self._flush()
        if not nullable:
            with self.block(f"if {length} < 0:"):
                self.line(f"raise not_nullable('{where}')")
        return length

    def _sized(self, code: str, size_bytes: int, nullable: bool, target: str, where: str, read: str) -> None:
        length = self._length(code, size_bytes, nullable, where)
        q = self.name("q")
        with self._unless_null(length, nullable, target):
            self.line(f"{q} = p + {length}")
            with self.block(f"if {q} > end:"):
                self.line(f"raise overrun('{where}', {length}, end - p)")
            self.line(f"{target} = {read.format(q=q)}")
            self.line(f"p = {q}")

    def _unless_null(self, length: str, nullable: bool, target: str) -> AbstractContextManager[None]:
        if nullable:
            self.line(f"{target} = None")
            return self.block(f"if {length} >= 0:")
        return self.block("if True:")

    def _array(self, element: FieldType, nullable: bool, target: str, where: str) -> None:
        count = self._length("i", 4, nullable, where)
        element_bytes = self.min_bytes(element)
        with self._unless_null(count, nullable, target):
            with self.block(f"if {count} * {element_bytes} > end - p:"):
                self.line(f"raise overrun('{where}', {count} * {element_bytes}, end - p)")
            is_number = isinstance(element, Fixed) and len(element.code) == 1
            if self._is_request or not is_number:
                limit = primitives.MAX_REQUEST_ELEMENTS if self._is_request else primitives.MAX_ELEMENTS
                self.line(f"elements += {count}")
                self.line(f"check_elements(elements, {limit})")
            if isinstance(element, Fixed) and is_number:
                self.line(f"{target} = list(unpack_from('>%d{element.code}' % {count}, data, p))")
                self.line(f"p += {count} * {element.size_bytes}")
                return
            self.line(f"{target} = []")
            with self.block(f"for _ in range({count}):"):
                value = self.name("v")
                self._value(element, False, value, where)
                self._flush()
                self.line(f"{target}.append({value})")
