#include "data/token_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "core/error.h"
#include "data/token_format.h"

namespace tfm::data {
namespace {

using namespace token_format;
namespace fs = std::filesystem;

[[noreturn]] void bad(const std::string& path, std::int64_t offset, const std::string& what,
                      const std::string& expected, const std::string& got) {
  throw Error(ExitCode::input, path + ": byte " + std::to_string(offset) + ": " + what +
                                   ": expected " + expected + ", got " + got);
}

void check_size(const std::string& path, std::int64_t size, std::int64_t end,
                const std::string& last) {
  if (size != end)
    bad(path, end, "size", std::to_string(end) + " bytes, where the " + last + " end",
        std::to_string(size));
}

void check_range(const TokenStream& stream, std::int64_t begin, std::size_t count) {
  const std::int64_t n = static_cast<std::int64_t>(count);
  TFM_CHECK(begin >= 0 && n <= stream.size() && begin <= stream.size() - n,
            "the ids lie outside " + stream.name());
}

// The .bin of the three ways to name a token file.
std::string data_path(const std::string& path) {
  if (path.ends_with(".idx")) return path.substr(0, path.size() - 4) + ".bin";
  std::error_code ignored;
  if (!fs::exists(path, ignored) && fs::exists(path + ".bin", ignored)) return path + ".bin";
  return path;
}

std::string index_path_of(const std::string& bin) {
  return (bin.ends_with(".bin") ? bin.substr(0, bin.size() - 4) : bin) + ".idx";
}

bool is_llmc(std::int32_t magic) { return magic == llmc_magic16 || magic == llmc_magic32; }

template <class F>
decltype(auto) with_id_type(IdType type, F&& f) {
  switch (type) {
    case IdType::u8:
      return f.template operator()<std::uint8_t>();
    case IdType::i8:
      return f.template operator()<std::int8_t>();
    case IdType::i16:
      return f.template operator()<std::int16_t>();
    case IdType::i32:
      return f.template operator()<std::int32_t>();
    case IdType::i64:
      return f.template operator()<std::int64_t>();
    case IdType::u16:
      return f.template operator()<std::uint16_t>();
    case IdType::u32:
      return f.template operator()<std::uint32_t>();
  }
  internal_error("unknown id type");
}

template <class T>
bool convert(const std::byte* from, std::span<std::int32_t> out) {
  bool fits = true;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t id = load<T>(from + i * sizeof(T));
    fits &= id >= 0 && id <= std::numeric_limits<std::int32_t>::max();
    out[i] = static_cast<std::int32_t>(id);
  }
  return fits;
}

}  // namespace

std::int64_t bytes_of(IdType type) {
  return with_id_type(type, []<class T>() { return static_cast<std::int64_t>(sizeof(T)); });
}

std::string name_of(IdType type) {
  return with_id_type(type, []<class T>() {
    return (std::is_signed_v<T> ? "int" : "uint") + std::to_string(8 * sizeof(T));
  });
}

MemoryTokens::MemoryTokens(std::string name, std::vector<std::int32_t> ids)
    : TokenStream(std::move(name)), ids_(std::move(ids)) {
  for (std::int32_t id : ids_) largest_ = std::max(largest_, id);
}

void MemoryTokens::read(std::int64_t begin, std::span<std::int32_t> out) const {
  check_range(*this, begin, out.size());
  std::copy_n(ids_.begin() + begin, out.size(), out.begin());
}

TokenFile::TokenFile(const std::string& path) : TokenStream(data_path(path)), file_(name()) {
  const auto bytes = file_.bytes();
  const std::int32_t magic = bytes.size() >= 4 ? load<std::int32_t>(bytes.data()) : 0;
  const std::string index = index_path_of(name());
  std::error_code ignored;
  if (is_llmc(magic) && !path.ends_with(".idx"))
    open_llmc();
  else if (path.ends_with(".idx") || fs::exists(index, ignored))
    open_megatron(index);
  else
    bad(name(), 0, "magic number",
        std::to_string(llmc_magic16) + " or " + std::to_string(llmc_magic32) +
            " of llm.c, or a Megatron index " + index + " next to it",
        bytes.size() < 4 ? "a file of " + std::to_string(bytes.size()) + " bytes"
                         : std::to_string(magic));
}

bool is_token_file(const std::string& path) {
  const std::string data = data_path(path);
  if (data.ends_with(".bin")) return true;
  std::error_code ignored;
  if (!fs::is_regular_file(data, ignored)) return false;  // a pipe can be read once only
  std::int32_t magic = 0;
  std::ifstream(data, std::ios::binary).read(reinterpret_cast<char*>(&magic), sizeof(magic));
  return is_llmc(magic);
}

void TokenFile::open_llmc() {
  const auto bytes = file_.bytes();
  const std::int64_t size = static_cast<std::int64_t>(bytes.size());
  if (size < llmc_header_bytes)
    bad(name(), size, "header", std::to_string(llmc_header_bytes) + " bytes",
        "a file of " + std::to_string(size));
  const auto word = [&](int i) { return load<std::int32_t>(bytes.data() + 4 * i); };
  const bool wide = word(0) == llmc_magic32;
  const std::int32_t version = wide ? llmc_version32 : llmc_version16;
  if (word(1) != version)
    bad(name(), 4, "version", std::to_string(version), std::to_string(word(1)));
  info_ = {"llm.c", wide ? IdType::u32 : IdType::u16, word(2), llmc_header_bytes, {}, {}};
  const std::int64_t width = bytes_of(info_.type), ids = (size - llmc_header_bytes) / width;
  if (word(2) != ids)
    bad(name(), 8, "token count",
        std::to_string(ids) + " for a file of " + std::to_string(size) + " bytes with " +
            name_of(info_.type) + " ids",
        std::to_string(word(2)));
  check_size(name(), size, llmc_header_bytes + ids * width, "ids");
}

void TokenFile::open_megatron(const std::string& index_path) {
  const io::MappedFile& index = index_.emplace(index_path);
  const std::byte* at = index.bytes().data();
  const std::int64_t size = static_cast<std::int64_t>(index.bytes().size());
  if (size < megatron_header_bytes)
    bad(index_path, size, "header", std::to_string(megatron_header_bytes) + " bytes",
        "a file of " + std::to_string(size));
  if (std::memcmp(at, megatron_magic.data(), megatron_magic.size()) != 0)
    bad(index_path, 0, "magic", "MMIDIDX", "other bytes");
  const auto version = load<std::uint64_t>(at + megatron_magic.size());
  if (version != megatron_version)
    bad(index_path, megatron_magic.size(), "version", "1", std::to_string(version));
  const auto code = load<std::uint8_t>(at + megatron_type_at);
  if (!(code >= 1 && code <= 5) && code != 8)
    bad(index_path, megatron_type_at, "id type", "1 to 5 or 8, an integer type",
        std::to_string(code));
  const auto sequences = load<std::uint64_t>(at + megatron_sequences_at),
             boundaries = load<std::uint64_t>(at + megatron_boundaries_at);
  const std::int64_t rest = size - megatron_header_bytes;
  if (sequences > static_cast<std::uint64_t>(rest / 12))
    bad(index_path, megatron_sequences_at, "sequence count",
        "at most " + std::to_string(rest / 12) + " for a file of " + std::to_string(size) +
            " bytes",
        std::to_string(sequences));
  const std::int64_t n = static_cast<std::int64_t>(sequences), fitting = (rest - 12 * n) / 8;
  if (boundaries == 0 || boundaries != static_cast<std::uint64_t>(fitting))
    bad(index_path, megatron_boundaries_at, "count of document boundaries",
        boundaries == 0 ? "at least 1"
                        : std::to_string(fitting) + ", of 8 bytes each, in the " +
                              std::to_string(rest - 12 * n) + " remaining bytes",
        std::to_string(boundaries));
  check_size(index_path, size, megatron_header_bytes + 12 * n + 8 * fitting, "document boundaries");

  const IdType type = static_cast<IdType>(code);
  const std::int64_t width = bytes_of(type),
                     bin_size = static_cast<std::int64_t>(file_.bytes().size());
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t length_at = megatron_header_bytes + 4 * i,
                       pointer_at = megatron_header_bytes + 4 * n + 8 * i;
    const std::int64_t length = load<std::int32_t>(at + length_at),
                       pointer = load<std::int64_t>(at + pointer_at);
    if (pointer != end)
      bad(index_path, pointer_at, "offset of sequence " + std::to_string(i),
          std::to_string(end) + ", the end of the previous one", std::to_string(pointer));
    if (length < 0 || length > (bin_size - end) / width)
      bad(index_path, length_at, "length of sequence " + std::to_string(i),
          "0 to the " + std::to_string((bin_size - end) / width) + " ids left in " + name(),
          std::to_string(length));
    end += length * width;
  }
  if (end != bin_size)
    bad(name(), end, "size", std::to_string(end) + " bytes as in " + index_path,
        std::to_string(bin_size));
  std::int64_t previous = 0;
  for (std::int64_t i = 0; i < fitting; ++i) {
    const std::int64_t boundary_at = megatron_header_bytes + 12 * n + 8 * i,
                       boundary = load<std::int64_t>(at + boundary_at);
    if (i == 0 ? boundary != 0 : boundary < previous || boundary > n)
      bad(index_path, boundary_at, "document boundary " + std::to_string(i),
          i == 0 ? "0" : std::to_string(previous) + " to " + std::to_string(n),
          std::to_string(boundary));
    previous = boundary;
  }
  info_ = {"Megatron", type, end / width, 0, n, fitting - 1};
}

std::int64_t TokenFile::document_start(std::int64_t document) const {
  const std::byte* at = index_->bytes().data() + megatron_header_bytes;
  const std::int64_t n = *info_.sequences,
                     sequence = load<std::int64_t>(at + 12 * n + 8 * document);
  return sequence == n ? info_.tokens
                       : load<std::int64_t>(at + 4 * n + 8 * sequence) / bytes_of(info_.type);
}

void TokenFile::document_starts(std::int64_t begin, std::int64_t end,
                                std::vector<std::int64_t>& out) const {
  if (!knows_documents()) return;
  const std::int64_t documents = *info_.documents;
  std::int64_t first = 0;  // by halving: the first document that does not start before `begin`
  for (std::int64_t left = documents; left > 0;) {
    const std::int64_t half = left / 2;
    if (document_start(first + half) < begin)
      first += half + 1, left -= half + 1;
    else
      left = half;
  }
  for (; first < documents; ++first) {
    const std::int64_t start = document_start(first);
    if (start >= end) return;
    if (out.empty() || out.back() != start) out.push_back(start);  // empty documents
  }
}

void TokenFile::read(std::int64_t begin, std::span<std::int32_t> out) const {
  check_range(*this, begin, out.size());
  const std::byte* from = ids() + begin * bytes_of(info_.type);
  with_id_type(info_.type, [&]<class T>() {
    if (convert<T>(from, out)) return;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::int64_t id = load<T>(from + i * sizeof(T));
      if (id < 0 || id > std::numeric_limits<std::int32_t>::max())
        throw Error(ExitCode::input,
                    name() + ": token " + std::to_string(begin + static_cast<std::int64_t>(i)) +
                        ": expected an id from 0 to 2147483647, got " + std::to_string(id));
    }
  });
}

}  // namespace tfm::data
