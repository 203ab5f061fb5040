// tfm-data: text to token files and back.
#include <algorithm>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/strings.h"
#include "data/chat_rows.h"
#include "data/prepare.h"
#include "data/source.h"
#include "data/token_origin.h"
#include "io/file.h"
#include "launch/programs.h"
#include "launch/support/arguments.h"
#include "launch/support/guarded.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace tfm;
using launch::Arguments, launch::OptionSpec;

constexpr const char* kHelp = R"(usage: tfm-data COMMAND [OPTIONS]

  prepare --input FILE... --tokenizer T --output OUT.bin [--format llmc|megatron] [--append-eod]
          [--add-begin | --no-add-begin] [--field NAME]
      Tokenizes text into a token file: llm.c's OUT.bin or Megatron's OUT.bin and OUT.idx. JSON lines (.jsonl, .ndjson
      and the like) hold one document per line, in the string field NAME (default: text); any other file is one
      document. Files may be compressed with gzip or Zstandard. --append-eod appends an end-of-document id
      (bytes: 257) to every document, --add-begin puts a begin-of-text id (bytes: 256) before it; without either
      option that is done where the tokenizer puts such an id before a text.
      OUT.bin.json names the tokenizer, which training and verify compare with theirs.
  encode --tokenizer T [--special-tokens]
      Prints the ids of each line of standard input; --special-tokens also prints the special tokens that the
      tokenizer adds around a text, such as [CLS] and [SEP].
  decode --tokenizer T
      Prints the text of each line of ids of standard input.
  train-tokenizer --input FILE... --vocab-size N --output tokenizer.json [--special TOKEN...] [--field NAME]
      Trains a byte-level BPE tokenizer with GPT-2's pattern. Special tokens (default: <|endoftext|>) get the first ids.
  chat FILE --tokenizer T [--template FILE] [--messages NAME]
      Prints each chat of JSON lines as a JSON object: its ids, and mask, which is 1 for the tokens that the assistant
      wrote. A line has a list of messages in NAME (default: messages), conversations, or prompt and completion, and
      may have tools. --template: a file, or chatml; without it, that of the tokenizer.
  info FILE [--seq-len N]
      Prints the header and the first ids of a token file; with --seq-len also the number of samples of N + 1 tokens
      and of the unused tokens at the end.
  verify FILE [--tokenizer T]
      Checks the whole file; with a tokenizer, also that every id is in its vocabulary (bytes: below 260), and that
      no other tokenizer made it.
  --help, --version

  T is `bytes`, a tokenizer.json, a SentencePiece .model, or a directory with tokenizer.json, with MarianMT's
  source.spm, target.spm and vocab.json, with vocab.json and merges.txt, or of T5, Llama or ByT5.
  A token FILE is an llm.c .bin or a Megatron .bin with its .idx.

Exit codes: 0 done, 1 failed, 2 bad command line, 3 bad input, 4 not enough memory, 75 I/O error.
)";

[[noreturn]] void usage(const std::string& message) {
  throw Error(ExitCode::usage, message + "; see --help");
}

[[noreturn]] void unknown(const std::string& kind, const std::string& word,
                          const std::vector<std::string_view>& known) {
  const std::string_view near = nearest(word, known, 3);
  usage("unknown " + kind + " " + in_quotes(word) +
        (near.empty() ? "; expected " + join(known) : "; did you mean " + quoted(near) + "?"));
}

struct Command {
  std::string_view name;
  std::vector<OptionSpec> options;
  std::size_t files = 0;  // positional arguments
  void (*run)(const Arguments&) = nullptr;
};

// A path such as lr=0.1.bin reads like an override.
std::vector<std::string> files_of(const Arguments& a) {
  std::vector<std::string> files = a.positional();
  files.insert(files.end(), a.overrides().begin(), a.overrides().end());
  return files;
}

void check(const Arguments& a, const Command& command) {
  for (const OptionSpec& o : command.options)
    if (!o.many && a.all(o.name).size() > 1) usage("option " + o.name + " is given twice");
  const std::vector<std::string> files = files_of(a);
  if (files.size() > command.files) usage("unexpected argument " + in_quotes(files.back()));
  if (files.size() < command.files) usage("expected a file");
}

std::string required(const Arguments& a, const std::string& option) {
  if (!a.has(option)) usage("option " + option + " is missing");
  return a.get(option);
}

// `files`: what is written. `tokenizer`: what is read beside the inputs, or empty.
void check_output(const Arguments& a, const std::vector<std::string>& files,
                  const std::string& tokenizer) {
  required(a, "--input");
  std::error_code ignored;
  std::vector<std::string> inputs = a.all("--input");
  inputs.push_back(tokenizer);
  for (std::filesystem::directory_iterator e(tokenizer, ignored), end; !ignored && e != end;
       e.increment(ignored))
    inputs.push_back(e->path().string());
  for (const std::string& input : inputs)
    for (const std::string& file : files)
      for (const std::string& written : {file, io::temporary_of(file)})
        if (std::filesystem::equivalent(input, written, ignored))
          usage("--output " + in_quotes(a.get("--output")) + ": " + written +
                " is also an input; expected another file");
}

void prepare(const Arguments& a) {
  const std::string format = a.get("--format", "llmc");
  const auto known = config::value_of<data::TokenFormat>(format);
  if (!known) unknown("format", format, {"llmc", "megatron"});
  const std::string output = required(a, "--output");
  std::vector<std::string> files{output};
  if (*known == data::TokenFormat::megatron)
    files.push_back(std::filesystem::path(output).replace_extension(".idx"));
  else if (output.ends_with(".idx"))
    usage("--output " + in_quotes(output) +
          ": .idx is the index beside a .bin file of Megatron; expected another name");
  check_output(a, files, required(a, "--tokenizer"));
  data::PrepareOptions options{a.all("--input"), required(a, "--tokenizer"), output};
  options.format = *known;
  options.append_eod = a.has("--append-eod");
  if (a.has("--add-begin") && a.has("--no-add-begin"))
    usage("--add-begin and --no-add-begin are both given; expected one");
  if (a.has("--add-begin")) options.add_begin = config::AddBegin::on;
  if (a.has("--no-add-begin")) options.add_begin = config::AddBegin::off;
  options.field = a.get("--field", options.field);
  const data::Prepared result = data::prepare_tokens(options);
  std::cout << options.output << ": " << result.tokens << " tokens, " << result.documents
            << " documents";
  if (result.empty > 0) std::cout << "; " << result.empty << " without text were skipped";
  std::cout << '\n';
}

void encode(const Arguments& a) {
  const auto tokenizer = tokenizer::load_tokenizer(required(a, "--tokenizer"));
  const bool specials = a.has("--special-tokens");
  std::string out;
  for (std::string line; std::getline(std::cin, line);) {
    out.clear();
    const auto ids = specials ? tokenizer->encode_with_specials(line) : tokenizer->encode(line);
    for (std::int32_t id : ids) out += (out.empty() ? "" : " ") + std::to_string(id);
    std::cout << out << '\n';
  }
}

void decode(const Arguments& a) {
  const auto tokenizer = tokenizer::load_tokenizer(required(a, "--tokenizer"));
  std::int64_t number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    const std::string where = "standard input:" + std::to_string(++number) + ": ";
    std::vector<std::int32_t> ids;
    for (std::size_t at = 0; (at = line.find_first_not_of(" \t\r", at)) != line.npos;) {
      const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
      const auto [stop, error] =
          std::from_chars(line.data() + at, line.data() + end, ids.emplace_back());
      if (error != std::errc() || stop != line.data() + end)
        throw Error(ExitCode::input, where + "expected ids separated by spaces, got " +
                                         in_quotes(line.substr(at, end - at)));
      at = end;
    }
    try {
      std::cout << tokenizer->decode(ids) << '\n';
    } catch (const Error& e) {
      throw Error(e.code(), where + e.what());
    }
  }
}

void train(const Arguments& a) {
  check_output(a, {required(a, "--output")}, "");
  tokenizer::TrainTokenizerOptions options{a.all("--input"), required(a, "--output")};
  required(a, "--vocab-size");
  options.vocab_size = a.integer("--vocab-size", 0, 1);
  options.specials =
      a.has("--special") ? a.all("--special") : std::vector<std::string>{"<|endoftext|>"};
  options.field = a.get("--field", options.field);
  const std::int64_t tokens = tokenizer::train_tokenizer(options);
  std::cout << options.output << ": " << tokens << " tokens"
            << (tokens < options.vocab_size ? "; no pair of the text is left to merge\n" : "\n");
}

void chat(const Arguments& a) {
  const std::string spec = required(a, "--tokenizer");
  const auto tokenizer = tokenizer::load_tokenizer(spec);
  const tokenizer::ChatTemplate chats(a.get("--template", "auto"), spec, *tokenizer,
                                      std::time(nullptr));
  data::each_chat(files_of(a)[0], a.get("--messages", "messages"), [&](const tokenizer::Chat& one) {
    const tokenizer::EncodedChat encoded = chats.encode(one);
    std::string out = "{\"ids\": [";
    for (std::size_t i = 0; i < encoded.ids.size(); ++i)
      out += (i > 0 ? ", " : "") + std::to_string(encoded.ids[i]);
    out += "], \"mask\": [";
    for (std::size_t i = 0; i < encoded.mask.size(); ++i)
      out.append(i > 0 ? ", " : "").append(encoded.mask[i] ? "1" : "0");
    std::cout << out << "]}\n";
    return true;
  });
}

void info(const Arguments& a) {
  const data::TokenFile file(files_of(a)[0]);
  const data::TokenFileInfo& i = file.info();
  std::vector<std::int32_t> first(
      static_cast<std::size_t>(std::min<std::int64_t>(file.size(), 16)));
  file.read(0, first);
  std::cout << "file: " << file.name() << "\nformat: " << i.format << "\ntokens: " << i.tokens
            << "\nid type: " << data::name_of(i.type) << '\n';
  if (i.sequences)
    std::cout << "sequences: " << *i.sequences << "\ndocuments: " << *i.documents << '\n';
  if (const auto origin = data::read_origin(file))
    std::cout << "tokenizer: " << origin->tokenizer << '\n';
  if (a.has("--seq-len")) {
    const std::int64_t length =
        a.integer("--seq-len", 0, 1, std::numeric_limits<std::int64_t>::max());
    const data::SampleCount count = data::count_samples(file.size(), length);
    std::cout << "samples of " << length << " + 1 tokens: " << count.samples
              << "\nunused tokens: " << count.left_out << '\n';
  }
  std::cout << "first ids:";
  for (std::int32_t id : first) std::cout << ' ' << id;
  std::cout << '\n';
}

// What ids must be below; of bytes also their special ids may stand in a file.
std::int64_t limit_of_ids(const Arguments& a) {
  if (!a.has("--tokenizer")) return std::int64_t{1} << 31;
  const std::string spec = a.get("--tokenizer");
  return tokenizer::is_bytes(spec) ? tokenizer::ByteSpecials::first_sentinel
                                   : tokenizer::load_tokenizer(spec)->vocab_size();
}

void verify(const Arguments& a) {
  const data::TokenFile file(files_of(a)[0]);
  const std::int32_t largest = data::check_all_ids(file, limit_of_ids(a));
  if (a.has("--tokenizer")) {
    const std::string spec = a.get("--tokenizer");
    data::check_origin(file, data::read_origin(file),
                       data::fingerprint(*tokenizer::load_tokenizer(spec)), spec);
  }
  const std::size_t bytes =
      static_cast<std::size_t>(file.size() * data::bytes_of(file.info().type));
  std::cout << file.name() << ": ok, " << file.size() << " tokens, largest id " << largest
            << ", XXH3-128 of the ids " << io::Checksum::of({file.ids(), bytes}) << '\n';
}

int run(int argc, char** argv) {
  const OptionSpec input{.name = "--input", .many = true}, output{"--output"},
      tokenizer{"--tokenizer"}, field{"--field"};
  const Command all[] = {
      {"prepare",
       {input,
        tokenizer,
        output,
        {"--format"},
        field,
        {"--append-eod", false},
        {"--add-begin", false},
        {"--no-add-begin", false}},
       0,
       prepare},
      {"encode", {tokenizer, {"--special-tokens", false}}, 0, encode},
      {"decode", {tokenizer}, 0, decode},
      {"train-tokenizer",
       {input, {"--vocab-size"}, output, {.name = "--special", .many = true}, field},
       0,
       train},
      {"chat", {tokenizer, {"--template"}, {"--messages"}}, 1, chat},
      {"info", {{"--seq-len"}}, 1, info},
      {"verify", {tokenizer}, 1, verify}};
  if (argc < 2) usage("expected a command");
  const auto command = std::ranges::find(all, std::string_view(argv[1]), &Command::name);
  if (command == std::end(all)) {
    std::vector<std::string_view> names;
    for (const Command& c : all) names.push_back(c.name);
    unknown("command", argv[1], names);
  }
  std::ios::sync_with_stdio(false);
  const Arguments args(argc - 1, argv + 1, command->options);
  check(args, *command);
  command->run(args);
  if (std::cin.bad())
    throw Error(ExitCode::retryable, "standard input cannot be read: " + errno_text());
  if (!std::cout.flush())
    throw Error(ExitCode::retryable, "standard output cannot be written: " + errno_text());
  return 0;
}

}  // namespace

int tfm::launch::data_main(int argc, char** argv) {
  return launch::guarded(argc, argv, kHelp, run, launch::Output::results, launch::kEachByItself);
}
