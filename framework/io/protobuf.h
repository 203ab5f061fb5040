#pragma once
// Protocol Buffers' wire format, read and written field by field:
// https://protobuf.dev/programming-guides/encoding/
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"

namespace tfm::io {

// Reads one message. Every length is checked. Error(input), which starts with `where`, for what is
// broken or not of the requested type.
class ProtobufReader {
 public:
  ProtobufReader(std::string_view message, std::string where)
      : rest_(message), where_(std::move(where)) {}

  // Advances to the next field; false at the end.
  bool next() {
    if (rest_.empty()) return false;
    const std::uint64_t key = read_varint();
    field_ = key >> 3;
    type_ = static_cast<int>(key & 7u);
    if (field_ == 0) fail("a field has number 0");
    if (type_ == varint_type) {
      number_ = read_varint();
    } else if (type_ == bytes_type || type_ == fixed32_type || type_ == fixed64_type) {
      const std::uint64_t length = type_ == bytes_type     ? read_varint()
                                   : type_ == fixed32_type ? 4
                                                           : 8;
      if (length > rest_.size())
        fail("a field of " + std::to_string(length) + " bytes, but only " +
             std::to_string(rest_.size()) + " remain");
      bytes_ = rest_.substr(0, length);
      rest_.remove_prefix(length);
    } else {
      fail("unknown field type");
    }
    return true;
  }
  std::uint64_t field() const { return field_; }
  std::uint64_t number() const { return expect(varint_type), number_; }
  std::string_view bytes() const { return expect(bytes_type), bytes_; }
  float real() const {
    expect(fixed32_type);
    std::uint32_t bits = 0;
    for (int i = 3; i >= 0; --i) bits = bits << 8 | static_cast<unsigned char>(bytes_[i]);
    return std::bit_cast<float>(bits);
  }
  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ExitCode::input,
                where_ + (field_ ? "field " + std::to_string(field_) + ": " : "") + problem);
  }

 private:
  static constexpr int varint_type = 0, fixed64_type = 1, bytes_type = 2, fixed32_type = 5;
  void expect(int type) const {
    if (type_ != type) fail("has an unexpected type");
  }
  std::uint64_t read_varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (rest_.empty()) fail("a number is truncated");
      const std::uint64_t byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      if (shift < 64) value |= (byte & 0x7Fu) << shift;
      if (byte < 0x80) return value;
    }
    fail("a number is longer than 10 bytes");
  }

  std::string_view rest_, bytes_;
  std::string where_;
  std::uint64_t field_ = 0, number_ = 0;
  int type_ = varint_type;
};

// Writes one message. Nested messages are written as bytes.
class ProtobufWriter {
 public:
  ProtobufWriter& number(std::uint64_t field, std::uint64_t value) {
    key(field, 0);
    varint(value);
    return *this;
  }
  ProtobufWriter& bytes(std::uint64_t field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    text_ += value;
    return *this;
  }
  ProtobufWriter& real(std::uint64_t field, float value) {
    key(field, 5);
    fixed(std::bit_cast<std::uint32_t>(value), 4);
    return *this;
  }
  ProtobufWriter& wide_real(std::uint64_t field, double value) {
    key(field, 1);
    fixed(std::bit_cast<std::uint64_t>(value), 8);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  void key(std::uint64_t field, unsigned type) { varint(field << 3 | type); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80u);
    text_ += static_cast<char>(value);
  }
  void fixed(std::uint64_t bits, int bytes) {
    for (int i = 0; i < bytes; ++i, bits >>= 8) text_ += static_cast<char>(bits);
  }

  std::string text_;
};

}  // namespace tfm::io
