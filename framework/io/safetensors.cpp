#include "io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace tfm::io {
namespace {

constexpr std::uint64_t max_header = 100'000'000;
constexpr std::size_t max_rank = 32;

int bits_of(std::string_view dtype) {  // 0: unknown
  static constexpr std::pair<std::string_view, int> table[] = {
      {"BOOL", 8},    {"U8", 8},          {"I8", 8},          {"F8_E4M3", 8}, {"F8_E5M2", 8},
      {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},
      {"F16", 16},    {"BF16", 16},       {"I32", 32},        {"U32", 32},    {"F32", 32},
      {"I64", 64},    {"U64", 64},        {"F64", 64},        {"C64", 64},    {"F4", 4},
      {"F6_E2M3", 6}, {"F6_E3M2", 6}};
  for (const auto& [name, bits] : table)
    if (name == dtype) return bits;
  return 0;
}

// Bytes of a tensor; empty where the product overflows or ends within a byte.
std::optional<std::uint64_t> bytes_of(int bits, const std::vector<std::int64_t>& shape) {
  std::uint64_t n = static_cast<std::uint64_t>(bits);
  for (auto extent : shape)
    if (extent < 0 || __builtin_mul_overflow(n, static_cast<std::uint64_t>(extent), &n))
      return std::nullopt;
  if (n % 8 != 0) return std::nullopt;
  return n / 8;
}

// Takes the header's JSON apart as it is parsed. Only the four levels that the format has can be
// entered, so depth is bounded.
class HeaderParser : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderParser(const std::string& path, std::map<std::string, TensorInfo>& tensors,
               std::map<std::string, std::string>& metadata)
      : path_(path), tensors_(tensors), metadata_(metadata) {}

  bool null() override { return wrong("null"); }
  bool boolean(bool) override { return wrong("a boolean"); }
  bool number_integer(number_integer_t) override { return wrong("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return wrong("a number that is not a 64-bit unsigned integer");
  }
  bool binary(binary_t&) override { return wrong("binary data"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (!in_array_) return wrong("a number");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      fail("is larger than 2^63 - 1");
    numbers_.push_back(value);
    if (numbers_.size() > (field_ == "shape" ? max_rank : 2)) fail("has too many numbers");
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ == 2 && in_metadata_)
      metadata_[field_] = value;
    else if (depth_ == 2 && field_ == "dtype" && !in_array_)
      tensor_.dtype = value;
    else
      return wrong("a string");
    return true;
  }
  bool start_object(std::size_t) override {
    if (depth_ >= 2 || in_array_) return wrong("an object");
    if (depth_++ == 1) {
      field_.clear();
      fields_.clear();
      in_metadata_ = name_ == "__metadata__";
      tensor_ = {};
    }
    return true;
  }
  bool key(string_t& key) override {
    if (depth_ == 1) {
      name_ = key;
      field_.clear();
      if (key == "__metadata__" ? std::exchange(metadata_seen_, true) : tensors_.count(key) > 0)
        fail("appears twice in the header");
      return true;
    }
    field_ = key;
    if (!fields_.insert(key).second) fail("appears twice");
    if (!in_metadata_ && key != "dtype" && key != "shape" && key != "data_offsets")
      fail("is unknown; expected dtype, shape and data_offsets");
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || in_array_ || field_ == "dtype") return wrong("an array");
    in_array_ = true;
    numbers_.clear();
    return true;
  }
  bool end_array() override {
    in_array_ = false;
    if (field_ == "shape") {
      tensor_.shape.assign(numbers_.begin(), numbers_.end());
    } else {
      if (numbers_.size() != 2) fail("needs two numbers, begin and end");
      tensor_.begin = numbers_[0];
      tensor_.end = numbers_[1];
    }
    return true;
  }
  bool end_object() override {
    if (depth_ == 1 || in_metadata_) {
      --depth_;
      return true;
    }
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      field_ = field;
      if (!fields_.count(field)) fail("is missing");
    }
    check_size();
    tensors_.emplace(name_, std::move(tensor_));
    --depth_;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    throw Error(ExitCode::input,
                path_ + ": header: not valid JSON at byte " + std::to_string(position) +
                    " of the header; the file is damaged or not a safetensors file");
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    std::string at = path_ + ": header";
    if (depth_ >= 1)
      at += std::string(name_ == "__metadata__" ? ": " : ": tensor ") + in_quotes(name_);
    if (depth_ >= 2 && !field_.empty()) at += ": field " + in_quotes(field_);
    throw Error(ExitCode::input, at + ": " + problem);
  }
  bool wrong(const std::string& found) const {
    const char* expected = depth_ == 0                         ? "an object"
                           : depth_ == 1                       ? "an object"
                           : in_metadata_ || field_ == "dtype" ? "a string"
                           : in_array_                         ? "an unsigned integer"
                                                               : "an array of unsigned integers";
    fail("found " + found + "; expected " + expected);
  }
  void check_size() {
    field_ = "dtype";
    const int bits = bits_of(tensor_.dtype);
    if (bits == 0) fail("unknown element type " + in_quotes(tensor_.dtype));
    field_ = "shape";
    const auto bytes = bytes_of(bits, tensor_.shape);
    if (!bytes) fail("the tensor's size overflows or is not a whole number of bytes");
    field_ = "data_offsets";
    if (tensor_.begin > tensor_.end)
      fail("begin " + std::to_string(tensor_.begin) + " is after end " +
           std::to_string(tensor_.end));
    if (tensor_.end - tensor_.begin != *bytes)
      fail("spans " + std::to_string(tensor_.end - tensor_.begin) +
           " bytes; shape and dtype require " + std::to_string(*bytes));
  }

  const std::string& path_;
  std::map<std::string, TensorInfo>& tensors_;
  std::map<std::string, std::string>& metadata_;
  int depth_ = 0;
  bool in_metadata_ = false, metadata_seen_ = false, in_array_ = false;
  std::string name_, field_;
  std::set<std::string> fields_;
  std::vector<std::uint64_t> numbers_;
  TensorInfo tensor_;
};

void check_coverage(const std::string& path, const std::map<std::string, TensorInfo>& tensors,
                    std::uint64_t data_bytes) {
  std::vector<std::pair<std::pair<std::uint64_t, std::uint64_t>, const std::string*>> order;
  for (const auto& [name, t] : tensors) order.push_back({{t.begin, t.end}, &name});
  std::sort(order.begin(), order.end());
  std::uint64_t at = 0;
  for (const auto& [range, name] : order) {
    if (range.first != at)
      throw Error(ExitCode::input, path + ": tensor " + in_quotes(*name) +
                                       ": field 'data_offsets': begins at " +
                                       std::to_string(range.first) + "; expected " +
                                       std::to_string(at) + ", the end of the previous tensor");
    at = range.second;
    if (at > data_bytes)
      throw Error(ExitCode::input, path + ": tensor " + in_quotes(*name) +
                                       ": field 'data_offsets': ends at " + std::to_string(at) +
                                       ", but the file has only " + std::to_string(data_bytes) +
                                       " bytes of data; it may be truncated");
  }
  if (at != data_bytes)
    throw Error(ExitCode::input, path + ": " + std::to_string(data_bytes - at) +
                                     " bytes at the end do not belong to a tensor");
}

template <class From, class To>
void convert(const std::byte* from, std::span<To> out, const std::string& where) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    From value;
    std::memcpy(&value, from + i * sizeof(From), sizeof(From));
    if constexpr (std::is_integral_v<To>)
      if (!std::in_range<To>(value))
        throw Error(ExitCode::input,
                    where + ": value " + std::to_string(value) + " does not fit in 32 bits");
    out[i] = static_cast<To>(value);
  }
}

}  // namespace

std::optional<DType> TensorInfo::type() const {
  for (DType t : {DType::f32, DType::f64, DType::i32, DType::i64})
    if (name_of(t) == dtype) return t;
  return std::nullopt;
}

std::int64_t TensorInfo::elements() const {
  std::int64_t n = 1;
  for (auto extent : shape) n *= extent;
  return n;
}

SafetensorsReader::SafetensorsReader(const std::string& path) : file_(path) {
  const auto all = file_.bytes();
  if (all.size() < 10)
    throw Error(ExitCode::input, path + ": " + std::to_string(all.size()) +
                                     " bytes are too short for a safetensors file");
  std::uint64_t header = 0;
  for (int i = 7; i >= 0; --i) header = header << 8 | std::to_integer<std::uint64_t>(all[i]);
  if (header > max_header || header > all.size() - 8 || header < 2)
    throw Error(ExitCode::input, path + ": header length " + std::to_string(header) +
                                     " is out of range; the file has " +
                                     std::to_string(all.size()) + " bytes, a header at most " +
                                     std::to_string(max_header));
  if (all[8] != std::byte{'{'})
    throw Error(ExitCode::input, path + ": header: the first byte must be '{'");
  const char* text = reinterpret_cast<const char*>(all.data()) + 8;
  HeaderParser parser(path, tensors_, metadata_);
  nlohmann::json::sax_parse(text, text + header, &parser);
  data_at_ = 8 + header;
  check_coverage(path, tensors_, all.size() - data_at_);
}

const TensorInfo& SafetensorsReader::info(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    throw Error(ExitCode::input, path() + ": no tensor " + in_quotes(name));
  return found->second;
}

std::span<const std::byte> SafetensorsReader::bytes(const std::string& name) const {
  const auto& t = info(name);
  return file_.bytes().subspan(data_at_ + t.begin, t.end - t.begin);
}

template <class T>
void SafetensorsReader::read(const std::string& name, std::int64_t first, std::span<T> out) const {
  const auto& t = info(name);
  const std::string where = path() + ": tensor " + in_quotes(name);
  const auto type = t.type();
  constexpr bool integers = std::is_integral_v<T>;
  if (!type || (*type == DType::i32 || *type == DType::i64) != integers)
    throw Error(ExitCode::input, where + ": field 'dtype': " + in_quotes(t.dtype) +
                                     " cannot be read as " + std::string(name_of(dtype_of<T>)) +
                                     "; expected " + (integers ? "I32 or I64" : "F32 or F64"));
  TFM_CHECK(first >= 0 && first <= t.elements() &&
                static_cast<std::int64_t>(out.size()) <= t.elements() - first,
            where);
  const std::byte* from = bytes(name).data() + first * size_of(*type);
  if (*type == dtype_of<T>) {
    if (!out.empty()) std::memcpy(out.data(), from, out.size_bytes());
  } else if constexpr (integers) {
    *type == DType::i32 ? convert<std::int32_t>(from, out, where)
                        : convert<std::int64_t>(from, out, where);
  } else {
    *type == DType::f32 ? convert<float>(from, out, where) : convert<double>(from, out, where);
  }
}
template void SafetensorsReader::read(const std::string&, std::int64_t, std::span<float>) const;
template void SafetensorsReader::read(const std::string&, std::int64_t, std::span<double>) const;
template void SafetensorsReader::read(const std::string&, std::int64_t,
                                      std::span<std::int32_t>) const;
template void SafetensorsReader::read(const std::string&, std::int64_t,
                                      std::span<std::int64_t>) const;

SafetensorsWriter::SafetensorsWriter(const std::string& path,
                                     const std::vector<TensorEntry>& entries,
                                     std::map<std::string, std::string> metadata)
    : file_(path) {
  metadata.emplace("format", "pt");
  std::string header = "{\"__metadata__\":" + nlohmann::json(metadata).dump();
  std::set<std::string> names{"__metadata__"};
  for (const auto& e : entries) {
    const auto bytes = bytes_of(bits_of(e.dtype), e.shape);
    TFM_CHECK(bits_of(e.dtype) && bytes,
              path + ": tensor " + in_quotes(e.name) + " has an invalid type or size");
    TFM_CHECK(names.insert(e.name).second,
              path + ": tensor " + in_quotes(e.name) + " is listed twice");
    const std::uint64_t begin = left_;
    TFM_CHECK(!__builtin_add_overflow(left_, *bytes, &left_), path + ": its size overflows");
    header += "," + nlohmann::json(e.name).dump() + ":{\"dtype\":\"" + e.dtype +
              "\",\"shape\":" + nlohmann::json(e.shape).dump() + ",\"data_offsets\":[" +
              std::to_string(begin) + "," + std::to_string(left_) + "]}";
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  TFM_CHECK(header.size() <= max_header, path + ": too many tensors for one header");
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i));
  append(std::as_bytes(std::span(length)));
  append(std::as_bytes(std::span(header)));
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  sum_.add(bytes);
  size_ += bytes.size();
  file_.write(bytes.data(), bytes.size());
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  TFM_CHECK(bytes.size() <= left_, file_.path() + ": more data was written than announced");
  left_ -= bytes.size();
  append(bytes);
}

void SafetensorsWriter::sync() {
  TFM_CHECK(left_ == 0, file_.path() + ": less data was written than announced");
  file_.sync();
}

void SafetensorsWriter::finish() {
  sync();
  file_.publish();
}

}  // namespace tfm::io
