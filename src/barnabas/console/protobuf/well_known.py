"""Types that Protobuf brings with it: schemas import them, and no registry has them."""

from __future__ import annotations

from typing import Final

from barnabas.console.protobuf.model import File
from barnabas.console.protobuf.proto_text import parse_proto

_PROTOBUF: Final = """
syntax = "proto3"; package google.protobuf;
message Timestamp { int64 seconds = 1; int32 nanos = 2; }
message Duration { int64 seconds = 1; int32 nanos = 2; }
message DoubleValue { double value = 1; }
message FloatValue { float value = 1; }
message Int64Value { int64 value = 1; }
message UInt64Value { uint64 value = 1; }
message Int32Value { int32 value = 1; }
message UInt32Value { uint32 value = 1; }
message BoolValue { bool value = 1; }
message StringValue { string value = 1; }
message BytesValue { bytes value = 1; }
message Any { string type_url = 1; bytes value = 2; }
message Empty {}
message FieldMask { repeated string paths = 1; }
enum NullValue { NULL_VALUE = 0; }
message Struct { map<string, Value> fields = 1; }
message ListValue { repeated Value values = 1; }
message Value {
  oneof kind {
    NullValue null_value = 1; double number_value = 2; string string_value = 3; bool bool_value = 4;
    Struct struct_value = 5; ListValue list_value = 6;
  }
}
"""
_GOOGLE: Final = """
syntax = "proto3"; package google.type;
message Date { int32 year = 1; int32 month = 2; int32 day = 3; }
message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }
message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }
message LatLng { double latitude = 1; double longitude = 2; }
"""
_CONFLUENT: Final = """
syntax = "proto3"; package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
"""


def well_known() -> list[File]:
    """A copy for each set of types: resolving names writes into them."""
    return [parse_proto(each) for each in (_PROTOBUF, _GOOGLE, _CONFLUENT)]
