"""The generator of encoders: Python source for one message in one version, all nested structs inlined.

Neighbouring values of fixed size are packed with one `Struct`; an empty section of tagged fields is a pad byte of it.
Parts are appended to one list and joined once. Record sets are handed on as they are given, in memory or as ranges of
files, so that the network lane can send files from the page cache; what stands before each is joined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct, pack

from kraft.protocol import primitives
from kraft.protocol.errors import ProtocolError
from kraft.protocol.primitives import Encoded, uvarint
from kraft.protocol.schema import UUID, Array, Binary, Field, FieldType, Fixed, Message, Structure, Text
from kraft.protocol.source import Source, default_value, has_record_sets
from kraft.protocol.texts import shortened

SHORT_ARRAY_LENGTH = 32
"""Arrays of numbers up to this length are packed with a prepared `Struct`, length included."""


def build_encoder(of: type[Message], version: int, flexible: bool) -> Callable[..., Encoded]:
    """Makes `encode(message) -> (parts, size)`; raises ProtocolError for what cannot be encoded."""
    return _EncoderSource(version, flexible).build(of)


class _EncoderSource(Source):
    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        self._run: list[tuple[str, str]] = []
        self._writer = "w"
        self._title = ""
        self._packers: dict[str, Callable[..., bytes]] = {}
        self._array_packers: dict[str, Callable[[Sequence[object]], bytes]] = {}
        self.namespace.update(
            ProtocolError=ProtocolError,
            UNENCODABLE=primitives.UNENCODABLE,
            UVARINTS=primitives.UVARINTS,
            add_records=primitives.add_records,
            check_uuid=primitives.check_uuid,
            not_nullable=primitives.not_nullable,
            record_set_bytes=primitives.record_set_bytes,
            shortened=shortened,
            string_uvarint=primitives.string_uvarint,
            uvarint=uvarint,
        )

    def build(self, of: type[Message]) -> Callable[..., Encoded]:
        title = self._title = f"{of.__name__} v{self.version}"
        with self.block("def encode(m):"):
            self.line("parts = []")
            self.line("w = parts.append")
            if has_record_sets(of):
                self.line("sent, sent_bytes = [], 0")
            with self.block("try:"):
                self._message(of, "m")
                self._flush()
                self.line("data = b''.join(parts)")
            with self.block("except UNENCODABLE as error:"):
                self.line(f"raise ProtocolError(f'{title} cannot be encoded: {{error}}') from error")
            if has_record_sets(of):
                self.line("return [*sent, data] if data else sent, sent_bytes + len(data)")
            else:
                self.line("return [data], len(data)")
        return self.compile("encode", f"encoder of {title}")

    def _put(self, code: str, expression: str) -> None:
        """Adds a value of fixed size to the run that one `Struct` writes; code "x" takes none."""
        self._run.append((code, expression))

    def _flush(self) -> None:
        """Writes the run."""
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        values = ", ".join(expression for _, expression in self._run if expression)
        self._run.clear()
        if codes == "x":
            self.line(f"{self._writer}(b'\\0')")
            return
        packer = self._packers.setdefault(codes, self.struct(codes).pack)
        self.line(f"{self._writer}({self.constant('pack', packer)}({values}))")

    def _message(self, of: type[Message], variable: str) -> None:
        for name, field in of.FIELDS:
            if not field.versions.includes(self.version) and not field.ignorable:
                self._refuse_absent(of, name, field, variable)
        for name, field in self.fields(of):
            self._value(field.type, self.nullable(field), f"{variable}.{name}")
        if self.flexible:
            tagged = self.tagged_fields(of)
            if tagged:
                self._tagged_section(tagged, variable)
            else:
                self._put("x", "")

    def _refuse_absent(self, of: type[Message], name: str, field: Field, variable: str) -> None:
        """Writes the refusal of a value that this version cannot carry, so that none is lost in silence."""
        with self.block(f"if {self._differs(field, f'{variable}.{name}')}:"):
            text = f"{of.__name__}.{name} cannot be sent in version {self.version}"
            self.line(f"raise ProtocolError('{text}')")

    def _differs(self, field: Field, value: str) -> str:
        """A condition: the value is not the field's default."""
        default = default_value(field)
        if default == []:
            return f"{value} is None or len({value})"
        if default is None and isinstance(field.type, Structure) and field.tagged.includes(self.version):
            return f"{value} is not None and {value} != {self.constant('default', field.type.of())}"
        return f"{value} != {self.constant('default', default)}"

    def _tagged_section(self, tagged: list[tuple[int, list[tuple[str, Field]]]], variable: str) -> None:
        self._flush()
        tags, outer = self.name("tags"), self._writer
        self.line(f"{tags} = []")
        for tag, fields in tagged:
            values = [(field, f"{variable}.{name}") for name, field in fields]
            with self.block(f"if {' or '.join(self._differs(field, value) for field, value in values)}:"):
                parts, self._writer = self.name("parts"), self.name("w")
                self.line(f"{parts} = []")
                self.line(f"{self._writer} = {parts}.append")
                for field, value in values:
                    self._value(field.type, self.nullable(field), value)
                if len(values) > 1:
                    self._put("x", "")
                self._flush()
                self.line(f"{parts} = b''.join({parts})")
                self.line(f"{tags}.append({uvarint(tag)!r} + uvarint(len({parts})) + {parts})")
            self._writer = outer
        self.line(f"{outer}(uvarint(len({tags})))")
        self.line(f"{outer}(b''.join({tags}))")

    def _value(self, kind: FieldType, nullable: bool, value: str) -> None:
        match kind:
            case Fixed():
                self._put(kind.code, f"check_uuid({value})" if kind == UUID else value)
            case Text(characters):
                text = value if characters is None else f"shortened({value}, {characters})"
                self._sized("h", nullable, value, f"{text}.encode()")
            case Binary(view=True):
                self._record_set(nullable, value)
            case Binary():
                self._sized("i", nullable, value, value)
            case Array(element):
                self._array(element, nullable, value)
            case Structure(of):
                self._structure(of, nullable, value)

    def _record_set(self, nullable: bool, value: str) -> None:
        """Writes the length of a record set, and hands its bytes on."""
        records, size, length = self.name("b"), self.name("s"), self.name("n")
        self.line(f"{records} = {value}")
        if not nullable:
            self._refuse_null(records, value)
        self.line(f"{size} = record_set_bytes({records})")
        self.line(f"{length} = {size}{' + 1' if self.flexible else ''}")
        self._length("i", length)
        with self.block(f"if {size} > 0:"):
            self.line(f"sent_bytes += add_records(sent, parts, {records}, {size})")

    def _structure(self, of: type[Message], nullable: bool, value: str) -> None:
        inner = self.name("m")
        self.line(f"{inner} = {value}")
        if not nullable:
            self._message(of, inner)
            return
        self._flush()
        with self.block(f"if {inner} is None:"):
            self.line(f"{self._writer}(b'\\xff')")
        with self.block("else:"):
            self._put("b", "1")
            self._message(of, inner)
            self._flush()

    def _sized(self, code: str, nullable: bool, value: str, expression: str) -> None:
        """Writes a length and its bytes."""
        data, length = self.name("b"), self.name("n")
        null = 0 if self.flexible else -1
        plus = " + 1" if self.flexible else ""
        if nullable:
            with self.block(f"if {value} is None:"):
                self.line(f"{data} = b''")
                self.line(f"{length} = {null}")
            with self.block("else:"):
                self.line(f"{data} = {expression}")
                self.line(f"{length} = len({data}){plus}")
        else:
            self._refuse_null(value, value)
            self.line(f"{data} = {expression}")
            self.line(f"{length} = len({data}){plus}")
        self._length(code, length)
        self.line(f"{self._writer}({data})")

    def _length(self, code: str, length: str) -> None:
        """Writes a length as on the wire: already one more than the true one if compact."""
        if self.flexible:
            self._flush()
            longer = "string_uvarint" if code == "h" else "uvarint"  # "h": a string's
            self.line(f"{self._writer}(UVARINTS[{length}] if {length} < 128 else {longer}({length}))")
        else:
            self._put(code, length)
            self._flush()

    def _array(self, element: FieldType, nullable: bool, value: str) -> None:
        items = self.name("a")
        self._flush()
        self.line(f"{items} = {value}")
        if nullable:
            null = b"\0" if self.flexible else b"\xff\xff\xff\xff"
            with self.block(f"if {items} is None:"):
                self.line(f"{self._writer}({null!r})")
            with self.block("else:"):
                self._items(element, items)
        else:
            self._refuse_null(items, value)
            self._items(element, items)

    def _refuse_null(self, variable: str, value: str) -> None:
        with self.block(f"if {variable} is None:"):
            self.line(f"raise not_nullable('{self._title}: {value.partition('.')[2] or 'an array element'}')")

    def _items(self, element: FieldType, items: str) -> None:
        if isinstance(element, Fixed):
            packer = self._array_packers.get(element.code)
            if packer is None:
                packer = self._array_packers[element.code] = _array_packer(element.code, self.flexible)
            values = f"[check_uuid(x) for x in {items}]" if element == UUID else items
            self.line(f"{self._writer}({self.constant('pack', packer)}({values}))")
            return
        length, item = self.name("n"), self.name("e")
        self.line(f"{length} = len({items}){' + 1' if self.flexible else ''}")
        self._length("i", length)
        with self.block(f"for {item} in {items}:"):
            if isinstance(element, Structure):
                self._message(element.of, item)
            else:
                self._value(element, False, item)
            self._flush()


def _array_packer(code: str, compact: bool) -> Callable[[Sequence[object]], bytes]:
    """Packs an array of fixed-size values, its length first."""
    head, plus = ("B", 1) if compact else ("i", 0)
    short = tuple(Struct(f">{head}{code * length}").pack for length in range(SHORT_ARRAY_LENGTH + 1))

    def pack_array(values: Sequence[object]) -> bytes:
        length = len(values)
        if length <= SHORT_ARRAY_LENGTH:
            return short[length](length + plus, *values)
        start = uvarint(length + 1) if compact else pack(">i", length)
        return start + pack(">" + code * length, *values)

    return pack_array
