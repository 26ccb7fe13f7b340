"""Message classes of the protobuf runtime from a short list of the fields that a reader wants; all others are skipped over.

One line per message, `Name: field=number type, …`; `[type]` is repeated, `a|b` are members of one union, of which at most
one is set. A type that is a message of the list is that message. Field numbers are the whole contract: a file of any later
version is read, and what it adds stays unread.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto
_TYPES: dict[str, int] = {
    "double": _Field.TYPE_DOUBLE, "float": _Field.TYPE_FLOAT, "int64": _Field.TYPE_INT64, "uint64": _Field.TYPE_UINT64,
    "int32": _Field.TYPE_INT32, "uint32": _Field.TYPE_UINT32, "fixed64": _Field.TYPE_FIXED64, "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES, "string": _Field.TYPE_BYTES,     # not all writers care for UTF-8: decoded where it is shown
}


def messages(package: str, schema: str) -> dict[str, Any]:
    """Message name -> class. Presence of fields is tracked as in proto2."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    lines = [line.partition(":") for line in schema.strip().splitlines() if line.strip()]
    names = {name.strip() for name, _, _ in lines}
    for name, _, fields in lines:
        message = file.message_type.add(name=name.strip())
        for number, text in enumerate(filter(str.strip, fields.split(","))):
            _add(message, package, names, [part.strip() for part in text.split("|")], f"union_{number}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in names}


def _add(message: Any, package: str, names: set[str], union: list[str], union_name: str) -> None:
    if len(union) > 1:
        message.oneof_decl.add(name=union_name)
    for text in union:
        declared, kind = text.split()
        name, number = declared.split("=")
        field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
        if kind.startswith("["):
            field.label, kind = _Field.LABEL_REPEATED, kind[1:-1]
        if kind in names:
            field.type, field.type_name = _Field.TYPE_MESSAGE, f".{package}.{kind}"
        else:
            field.type = _TYPES[kind]
        if len(union) > 1:
            field.oneof_index = len(message.oneof_decl) - 1


def text(value: bytes) -> str:
    """Return a string field as text; bytes that are not UTF-8 show as �."""
    return value.decode("utf-8", "replace")
