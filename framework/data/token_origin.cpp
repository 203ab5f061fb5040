#include "data/token_origin.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "core/error.h"
#include "io/file.h"
#include "io/json.h"

namespace tfm::data {

std::string origin_path(const std::string& token_file) { return token_file + ".json"; }

void write_origin(const std::string& token_file, const TokenOrigin& origin) {
  nlohmann::ordered_json tree{{"tokenizer", origin.tokenizer},
                              {"fingerprint", origin.fingerprint},
                              {"tokens", origin.tokens},
                              {"documents", origin.documents},
                              {"document_end", nullptr}};
  if (origin.document_end) tree["document_end"] = *origin.document_end;
  io::replace_file(origin_path(token_file),
                   tree.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

std::optional<TokenOrigin> read_origin(const TokenFile& file) {
  const std::string path = origin_path(file.name());
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  const nlohmann::json tree = io::read_json_file(path, 1 << 20);
  const io::JsonNode root(tree, path);
  constexpr std::int64_t most = std::int64_t{1} << 53, ids = std::int64_t{1} << 31;
  TokenOrigin origin{.tokenizer = root.at("tokenizer").string(),
                     .fingerprint = root.at("fingerprint").string(),
                     .tokens = root.at("tokens").integer(0, most),
                     .documents = root.at("documents").integer(0, most),
                     .document_end = std::nullopt};
  if (const auto end = root.find("document_end"))
    origin.document_end = static_cast<std::int32_t>(end->integer(0, ids - 1));
  return origin.tokens == file.size() ? std::optional(origin) : std::nullopt;
}

std::string fingerprint(const tokenizer::Tokenizer& tokenizer) {
  io::Checksum sum;
  const auto add = [&](std::string_view text) {
    const std::uint64_t size = text.size();
    sum.add(std::as_bytes(std::span(&size, 1)));
    sum.add(std::as_bytes(std::span(text)));
  };
  const auto id_text = [](const std::optional<std::int32_t>& id) {
    return id ? std::to_string(*id) : std::string();
  };
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    add(tokenizer.knows(id) ? tokenizer.decode(std::span(&id, 1)) : "");
  const tokenizer::SpecialIds s = tokenizer.special_ids();
  for (const auto& id :
       {s.pad, s.unknown, s.begin, s.end, s.mask, s.classify, s.separate, tokenizer.document_end()})
    add(id_text(id));
  return sum.hex();
}

std::string fingerprint_of_sides(const tokenizer::Tokenizer& tokenizer) {
  const std::string source = fingerprint(tokenizer.source());
  return &tokenizer.target() == &tokenizer ? source : source + fingerprint(tokenizer.target());
}

void check_origin(const TokenFile& file, const std::optional<TokenOrigin>& origin,
                  const std::string& of, const std::string& spec) {
  if (!origin || origin->fingerprint == of) return;
  throw Error(ExitCode::input, file.name() + ": its ids were made with tokenizer " +
                                   origin->tokenizer +
                                   ", in which they mean something else than in " + spec +
                                   "; expected that tokenizer, or remove " +
                                   origin_path(file.name()) + " if the ids agree all the same");
}

}  // namespace tfm::data
