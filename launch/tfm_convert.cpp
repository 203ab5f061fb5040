// tfm-convert: Hugging Face directories to checkpoints and back.
#include <cstdio>
#include <filesystem>
#include <set>

#include "checkpoint/lock.h"
#include "checkpoint/manifest.h"
#include "data/pairs.h"
#include "huggingface/export.h"
#include "huggingface/sidecars.h"
#include "huggingface/weights.h"
#include "inference/loaded_model.h"
#include "inference/text_format.h"
#include "io/file.h"
#include "launch/programs.h"
#include "launch/support/program.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace tfm;

std::string model_of(const config::Config& config) {
  const std::string family = config::word(config.model.family);
  return (family.front() == 'e' ? "an " : "a ") + family + " model";
}

constexpr const char* kHelp = R"(usage: tfm-convert import HF_DIR OUT_DIR [--force]
         converts a Hugging Face model to a checkpoint OUT_DIR/step-00000000, readable at any layout
       tfm-convert export CHECKPOINT_DIR OUT_HF_DIR [--force]
         writes config.json, model.safetensors and the tokenizer files; of a directory of
         checkpoints, or the folder of a run, those of the latest checkpoint
  --force  replace the model, or the import, that the directory holds
  --help, --version
A directory to import to must hold no checkpoints of a run, and none may be running there.
Architectures: gpt2, llama, mistral, mixtral, qwen2, qwen2_moe, qwen3, qwen3_moe, qwen3_next, bamba,
deepseek_v3, gpt_oss, olmo2, gemma2, gemma3_text, phi3, bert, distilbert, roberta, modernbert,
big_bird, longformer, t5, switch_transformers, bart, marian and m2m_100, as saved by transformers 4
and 5. Exporting an imported model restores its tensor types and every field of config.json.
)";

std::vector<checkpoint::Chunk> pieces_of(const inference::LoadedModel& m) {
  std::vector<checkpoint::Chunk> pieces;
  for (const nn::PartSlice& p : m.model->parameters().slices())
    pieces.push_back({{-1, 0, 0, 0, p.elements()}, "model/" + p.name, p.full, m.flat() + p.offset});
  return pieces;
}

void expect_no_run(const std::string& dir) {
  if (huggingface::is_huggingface(dir))
    throw Error(ExitCode::usage, dir +
                                     ": has a config.json, and programs would read that model "
                                     "instead of the checkpoint; choose another directory");
  const auto newest = checkpoint::find_latest(
      dir, [](const std::string&) {}, checkpoint::Verification::headers);
  if (newest && checkpoint::CheckpointReader(*newest).manifest().step > 0)
    throw Error(ExitCode::usage, dir + ": a run has written " + *newest +
                                     ", and would continue from the import instead; choose another "
                                     "directory");
}

// An import replaces an earlier one only by force.
void expect_no_import(const std::string& dir) {
  for (const char* made : {"step-00000000", "tokenizer"})
    if (std::error_code none; std::filesystem::exists(dir + "/" + made, none))
      throw Error(ExitCode::usage,
                  dir + ": has " + made +
                      ", which an import would replace; choose another directory, or use --force");
}

// A model is replaced only by force.
void expect_no_model(const std::string& dir) {
  std::set<std::string> found;
  std::error_code none;
  for (const auto& e : std::filesystem::directory_iterator(dir, none))
    if (const std::string name = e.path().filename().string();
        name == "config.json" || huggingface::is_weights_file(name))
      found.insert(name);
  if (found.empty()) return;
  std::string names;
  for (const std::string& name : found) names += (names.empty() ? "" : ", ") + name;
  throw Error(ExitCode::usage,
              dir + ": holds a model (" + names +
                  "), which the export would replace; choose another directory, or use --force");
}

void expect_directory_name(const std::string& dir) {
  const std::string extension = std::filesystem::path(dir).extension().string();
  if (extension == ".gguf" || extension == ".safetensors" || extension == ".bin")
    throw Error(ExitCode::usage,
                dir + ": " + (extension == ".gguf" ? "GGUF files are not supported yet; " : "") +
                    "an export is a Hugging Face directory with config.json and "
                    "model.safetensors; expected a name without " +
                    extension);
}

// Programs would read the export instead of the checkpoints, also of later steps.
void expect_no_checkpoints(const std::string& dir) {
  if (std::error_code none;
      std::filesystem::exists(dir + "/manifest.json", none) || checkpoint::count_steps(dir) > 0)
    throw Error(ExitCode::usage,
                dir + ": has checkpoints; choose another directory for the export");
}

// A folder that is filled under another name, and then takes the place of one.
class StagedFolder {
 public:
  explicit StagedFolder(std::string final)
      : final_(std::move(final)), path_(io::temporary_of(final_)) {
    std::filesystem::remove_all(path_);
  }
  ~StagedFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  const std::string& path() const { return path_; }
  void publish() const {
    std::filesystem::remove_all(final_);
    io::rename_file(path_, final_);
    io::sync_directory(io::parent_directory(final_));
  }

 private:
  std::string final_, path_;
};

void expect_huggingface(const std::string& dir) {
  if (huggingface::is_huggingface(dir)) return;
  std::error_code none;
  throw Error(
      ExitCode::input,
      dir + (std::filesystem::exists(dir, none) ? ": has no config.json" : ": does not exist") +
          "; expected a Hugging Face directory, with config.json and model.safetensors");
}

void warn_without_tokenizer(const std::string& dir) {
  try {
    tokenizer::load_tokenizer(dir);
  } catch (const Error& e) {
    std::fprintf(stderr,
                 "warning: the import has no tokenizer, and bytes do not take its place: programs "
                 "that read or write text need data.tokenizer: %s\n",
                 e.what());
  }
}

int import(const std::string& from, const std::string& to, bool force) {
  expect_huggingface(from);
  if (std::error_code none; std::filesystem::equivalent(from, to, none))
    throw Error(ExitCode::usage,
                to + ": is the model directory; choose another one for the checkpoint");
  config::Config config = inference::huggingface_run(from);
  config.train.global_batch_size = config.train.micro_batch_size = config.sequences_together();
  config::resolve_for_ranks(config, 1);
  const inference::LoadedModel model = inference::load_model(
      from, config, comm::rank_context(device::Device::cpu(1), comm::single_mesh()));
  const checkpoint::RunLock lock(to);
  expect_no_run(to);
  if (!force) expect_no_import(to);
  const std::string sidecars = to + "/tokenizer";
  const huggingface::HuggingFaceModel source(from);
  const StagedFolder staged(sidecars);
  source.keep_sidecars(staged.path());
  config.data.tokenizer = sidecars;
  const checkpoint::CheckpointInfo info{.step = 0,
                                        .seed = config.train.seed,
                                        .config = config::dump_config(config),
                                        .directory = inference::directory_of(config.data),
                                        .extra = source.provenance(sidecars)};
  const checkpoint::CheckpointResult r =
      checkpoint::write_checkpoint(to, info, pieces_of(model), 0, {});
  if (!r.ok()) throw Error(ExitCode::retryable, r.error);
  staged.publish();
  warn_without_tokenizer(from);
  std::printf("%s: %lld parameters of %s\n", r.path.c_str(),
              static_cast<long long>(model.model->parameters().trained_elements()),
              model_of(config).c_str());
  return 0;
}

// The tokenizer that belongs to an export, which has no ids of special tokens without it.
std::unique_ptr<tokenizer::Tokenizer> tokenizer_of(const std::string& path,
                                                   const config::DataConfig& data, bool needs_ids) {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  try {
    tokenizer = tokenizer::load_tokenizer(data.tokenizer);
  } catch (const Error& e) {
    if (needs_ids)
      std::fprintf(stderr, "warning: config.json will have no ids of special tokens: %s\n",
                   e.what());
    return nullptr;
  }
  if (!data.source_tokenizer.empty()) return tokenizer;  // which is not exported
  if (const std::string text = inference::other_tokenizer(path, *tokenizer, data); !text.empty())
    throw Error(ExitCode::input, text + "; put that file back, for it belongs to the export");
  return tokenizer;
}

// Ids that generation begins, ends and pads with; also sets model.decoder_start.
tokenizer::SpecialIds special_ids(const tokenizer::Tokenizer& tokenizer,
                                  config::ModelConfig& model) {
  tokenizer::SpecialIds ids = tokenizer.special_ids();
  if (!model.translates()) {
    ids.end = tokenizer.document_end();
    return ids;
  }
  const data::SentenceIds sentence = data::sentence_ids(tokenizer, model.decoder_start);
  model.decoder_start = sentence.begin;
  ids.end = sentence.end;
  return ids;
}

int export_to(const std::string& from, const std::string& to, bool force) {
  expect_directory_name(to);
  expect_no_checkpoints(to);
  if (!force) expect_no_model(to);
  const std::string path = inference::verified_path(from, comm::single_mesh().world());
  config::Config config = inference::checkpoint_config(path, {});
  config.train.global_batch_size = config.train.micro_batch_size = config.sequences_together();
  config::resolve_for_ranks(config, 1);
  const inference::LoadedModel model = inference::load_model(
      path, config, comm::rank_context(device::Device::cpu(1), comm::single_mesh()));
  const std::string provenance = huggingface::is_huggingface(path)
                                     ? huggingface::HuggingFaceModel(path).provenance()
                                     : checkpoint::CheckpointReader(path).manifest().extra;
  const bool own = provenance == "{}";
  if (!config.data.source_tokenizer.empty()) {
    std::fprintf(stderr,
                 "warning: the export has no tokenizer: transformers has none of two files for "
                 "data.tokenizer %s and data.source_tokenizer %s\n",
                 config.data.tokenizer_or_bytes().c_str(), config.data.source_tokenizer.c_str());
    config.data.tokenizer = "bytes";
  }
  std::optional<tokenizer::SpecialIds> ids;
  if (const auto tokenizer = tokenizer_of(path, config.data, own); own && tokenizer)
    ids = special_ids(*tokenizer, config.model);
  huggingface::write_huggingface(
      to, config.model, ids, own ? "" : provenance, inference::tokenizer_beside(path),
      config.data.tokenizer, [&](const std::string& part) {
        for (const nn::PartSlice& p : model.model->parameters().slices())
          if (p.name == part)
            return std::vector<float>(model.flat() + p.offset,
                                      model.flat() + p.offset + p.elements());
        internal_error("the model has no tensor " + part);
      });
  std::printf("%s: %s of %s\n", to.c_str(), model_of(config).c_str(), path.c_str());
  return 0;
}

int run(int argc, char** argv) {
  const launch::Arguments args(argc, argv, {{"--force", false}, {"--format"}});
  if (args.has("--format"))
    throw Error(ExitCode::usage, "--format " + args.get("--format") +
                                     " is not supported yet: an export is a Hugging Face "
                                     "directory; leave the option out");
  const auto& words = args.positional();
  if (!args.overrides().empty())
    throw Error(ExitCode::usage, "tfm-convert takes no configuration keys, got " +
                                     in_quotes(args.overrides().front()) +
                                     "; write ./ before a path that has a '='");
  if (words.size() != 3 || (words[0] != "import" && words[0] != "export"))
    throw Error(
        ExitCode::usage,
        "expected `import HF_DIR OUT_DIR` or `export CHECKPOINT_DIR OUT_HF_DIR`; see --help");
  const bool force = args.has("--force");
  return words[0] == "import" ? import(words[1], words[2], force)
                              : export_to(words[1], words[2], force);
}

}  // namespace

int tfm::launch::convert_main(int argc, char** argv) {
  return tfm::launch::guarded(argc, argv, kHelp, run, tfm::launch::Output::results,
                              tfm::launch::kFirstRankAlone);
}
