// tfm-probe: one forward (and backward) pass on tensors given from outside.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "huggingface/architecture.h"
#include "huggingface/config.h"
#include "huggingface/export.h"
#include "huggingface/sidecars.h"
#include "inference/inference.h"
#include "inference/initial_weights.h"
#include "inference/loaded_model.h"
#include "io/safetensors.h"
#include "launch/support/device_choice.h"
#include "models/registry.h"
#include "train/engine.h"

namespace {

using namespace tfm;

constexpr const char* kHelp =
    R"(usage: [mpirun -np N] tfm-probe MODEL_DIR --batch IN.safetensors --out OUT.safetensors
                                [--gradients] [section.key=value ...]
  MODEL_DIR      a Hugging Face directory, a checkpoint, or a directory of checkpoints
  --batch FILE   int64 tensors that the model uses, and no others, named as in transformers:
                 input_ids (B, T), attention_mask, token_type_ids, decoder_input_ids (default: the
                 labels shifted right), decoder_attention_mask, labels (-100: ignored; not shifted
                 for a decoder), next_sentence_label (B)
  --out FILE     float32 logits (B, T, V) and, with labels, loss (1), the mean over all labels that
                 are not ignored
  --gradients    also write grad.NAME for every parameter, with Hugging Face's names and shapes
  --help, --version
Runs one forward pass (and one backward pass) without dropout, at any layout under mpirun, and on
GPUs with device=cuda. With parallel.pipeline or parallel.context logits come from a pass of their
own, in which ranks share sequences instead.
)";

// What the file holds, under the names of the model's fields: one batch.
class ProbeBatch final : public data::Dataset {
 public:
  nn::BatchShape shape;  // of the global batch
  std::map<Field, std::vector<std::int32_t>> fields;
  bool labelled = false;

  GlobalBatch batch(std::int64_t) const override { return {0, shape.sequences}; }
  std::int64_t batches() const override { return 1; }
  void fill(std::int64_t, std::int64_t first, std::int64_t count,
            const BatchFields& to) const override {
    for (const auto& [field, span] : to) {
      const std::int64_t width = shape.width(field);
      std::copy_n(fields.at(field).begin() + first * width, count * width, span.begin());
    }
  }
};

class BatchFile {
 public:
  explicit BatchFile(const std::string& path) : reader_(path) {}
  bool has(const std::string& name) const { return reader_.has(name); }
  std::vector<std::int32_t> read(const std::string& name, std::int64_t rows,
                                 std::int64_t cols) const {
    const auto& shape = reader_.info(name).shape;
    const std::vector<std::int64_t> expected =
        cols > 0 ? std::vector<std::int64_t>{rows, cols} : std::vector<std::int64_t>{rows};
    if (shape != expected)
      throw Error(ExitCode::input, reader_.path() + ": tensor '" + name +
                                       "' differs in shape from input_ids; expected (" +
                                       std::to_string(rows) +
                                       (cols > 0 ? ", " + std::to_string(cols) + ")" : ")"));
    return reader_.read<std::int32_t>(name);
  }
  // Ids below `count`; labels may be -100, which counts as none.
  enum class Kind : std::uint8_t { ids, labels };
  std::vector<std::int32_t> read(const std::string& name, std::int64_t rows, std::int64_t cols,
                                 std::int64_t count, Kind kind = Kind::ids) const {
    std::vector<std::int32_t> all = read(name, rows, cols);
    for (const std::int32_t id : all)
      if (!(kind == Kind::labels && id == -100) && (id < 0 || id >= count))
        throw Error(ExitCode::input, path() + ": tensor '" + name + "' has " + std::to_string(id) +
                                         "; expected 0 to " + std::to_string(count - 1) +
                                         (kind == Kind::labels ? ", or -100 for no label" : ""));
    return all;
  }
  std::pair<std::int64_t, std::int64_t> size(const std::string& name) const {
    const auto& shape = reader_.info(name).shape;
    if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1)
      throw Error(ExitCode::input,
                  reader_.path() + ": tensor '" + name + "' is not a matrix; expected (B, T)");
    return {shape[0], shape[1]};
  }
  void expect_only(const std::vector<std::string_view>& known) const {
    for (const auto& [name, info] : reader_.tensors())
      if (std::ranges::find(known, name) == known.end())
        throw Error(ExitCode::input, path() + ": tensor " + in_quotes(name) +
                                         " is not supported for this model; expected " +
                                         join(known));
  }
  std::string path() const { return reader_.path(); }

 private:
  io::SafetensorsReader reader_;
};

std::vector<std::int32_t> as_mask(std::vector<std::int32_t> ones) {
  for (auto& x : ones) x = x != 0 ? 0 : -1;
  return ones;
}

std::vector<std::int32_t> shifted_left(const std::vector<std::int32_t>& labels,
                                       std::int64_t length) {
  std::vector<std::int32_t> out(labels.size(), -1);
  for (std::size_t i = 0; i + 1 < labels.size(); ++i)
    if ((i + 1) % static_cast<std::size_t>(length) != 0) out[i] = labels[i + 1];
  return out;
}

// The id of padding: the model's, else that of the config.json it came with, as T5's embedding has
// no padding_idx.
std::int32_t padding_of(const std::string& dir, const config::ModelConfig& m) {
  if (m.padding_idx >= 0) return static_cast<std::int32_t>(m.padding_idx);
  const bool theirs = huggingface::is_huggingface(dir);
  const std::string file = dir + (theirs ? "/config.json" : "/manifest.json (extra)");
  const huggingface::Json config =
      theirs ? huggingface::read_config(dir)
             : io::parse_json(checkpoint::CheckpointReader(dir).manifest().extra, file)
                   .value("config", huggingface::Json::object());
  const std::int64_t id = huggingface::padding({config, file}, m.vocab_size, 0);
  if (id < 0)
    throw Error(ExitCode::input, file +
                                     ": pad_token_id is null, so that labels give no "
                                     "decoder_input_ids; expected these in the batch");
  return static_cast<std::int32_t>(id);
}

// transformers' decoder_input_ids: labels behind the start token, ignored ones as padding.
std::vector<std::int32_t> shifted_right(const std::vector<std::int32_t>& labels,
                                        std::int64_t length, std::int32_t padding,
                                        const config::ModelConfig& m) {
  std::vector<std::int32_t> out(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i)
    out[i] = i % static_cast<std::size_t>(length) == 0 ? static_cast<std::int32_t>(m.decoder_start)
             : labels[i - 1] == -100                   ? padding
                                                       : labels[i - 1];
  return out;
}

std::vector<std::int32_t> labels_of(const BatchFile& file, std::int64_t rows, std::int64_t length,
                                    const config::ModelConfig& m) {
  return file.read("labels", rows, length, m.vocab_size, BatchFile::Kind::labels);
}

std::vector<std::string_view> known_tensors(const config::ModelConfig& m) {
  std::vector<std::string_view> known{"input_ids", "attention_mask", "labels"};
  if (m.type_vocab_size > 0 || !m.decodes()) known.emplace_back("token_type_ids");
  if (m.next_sentence) known.emplace_back("next_sentence_label");
  if (m.translates()) known.insert(known.end(), {"decoder_input_ids", "decoder_attention_mask"});
  return known;
}

// RoBERTa's positions do not count padding in transformers: those of the columns where it is masked
// and behind the text.
void expect_padding_behind(const std::string& path, const config::ModelConfig& m,
                           const ProbeBatch& b) {
  if (m.family != config::Family::encoder || m.position_offset == 0 ||
      m.position_offset != m.padding_idx + 1)
    return;
  const auto at = [&b](Field field, std::int64_t i) { return b.fields.at(field)[i]; };
  bool behind = false;
  for (std::int64_t i = 0; i < b.shape.sequences * b.shape.length; ++i) {
    behind = (behind && i % b.shape.length != 0) || at(Field::ids, i) == m.padding_idx;
    if (behind && (at(Field::mask, i) == 0 || at(Field::labels, i) >= 0))
      throw Error(ExitCode::input,
                  path + ": tensor 'input_ids' has padding (" + std::to_string(m.padding_idx) +
                      ") in sequence " + std::to_string(i / b.shape.length) +
                      " that is not masked, or not behind the text; transformers counts positions "
                      "without it, which is not supported; expected attention_mask 0 and no label "
                      "from the first padding on");
  }
}

ProbeBatch read_batch(const std::string& path, const std::string& dir,
                      const config::ModelConfig& m) {
  const BatchFile file(path);
  file.expect_only(known_tensors(m));
  ProbeBatch b;
  const auto [B, T] = file.size("input_ids");
  b.shape = {.sequences = B, .length = T};
  b.fields[m.translates() ? Field::source_ids : Field::ids] =
      file.read("input_ids", B, T, m.vocab_size);
  if (m.encodes())
    b.fields[m.translates() ? Field::source_mask : Field::mask] =
        file.has("attention_mask") ? as_mask(file.read("attention_mask", B, T))
                                   : std::vector<std::int32_t>(B * T, 0);
  std::string mask = "attention_mask";
  if (m.translates()) {
    const bool given = file.has("decoder_input_ids");
    if (!given && (m.decoder_start < 0 || !file.has("labels")))
      throw Error(ExitCode::input,
                  path + ": tensor 'decoder_input_ids' is missing" +
                      (m.decoder_start < 0 ? ", and the model has no decoder start token"
                                           : ", and there are no labels to derive it from"));
    const std::int64_t length = file.size(given ? "decoder_input_ids" : "labels").second;
    b.shape = {.sequences = B, .length = length, .source_length = T};
    b.fields[Field::ids] =
        given ? file.read("decoder_input_ids", B, length, m.vocab_size)
              : shifted_right(labels_of(file, B, length, m), length, padding_of(dir, m), m);
    mask = "decoder_attention_mask";
  }
  if (m.decodes() && file.has(mask)) {
    b.shape.mask = nn::Mask::padding;
    b.fields[Field::mask] = as_mask(file.read(mask, B, b.shape.length));
  }
  if (m.type_vocab_size > 0)
    b.fields[Field::token_types] = file.has("token_type_ids")
                                       ? file.read("token_type_ids", B, T, m.type_vocab_size)
                                       : std::vector<std::int32_t>(B * T, 0);
  else if (file.has("token_type_ids"))
    file.read("token_type_ids", B, T, 1);  // all 0
  b.labelled = file.has("labels");
  b.fields[Field::labels] = b.labelled ? labels_of(file, B, b.shape.length, m)
                                       : std::vector<std::int32_t>(B * b.shape.length, -1);
  if (m.family == config::Family::decoder)
    b.fields[Field::labels] = shifted_left(b.fields[Field::labels], T);
  if (m.next_sentence)
    b.fields[Field::sentence_labels] =
        file.has("next_sentence_label")
            ? file.read("next_sentence_label", B, 0, 2, BatchFile::Kind::labels)
            : std::vector<std::int32_t>(B, -1);
  expect_padding_behind(path, m, b);
  return b;
}

// With columns that do not count behind each sequence: lengths that are multiples of `of`.
ProbeBatch padded(const ProbeBatch& b, std::int64_t of) {
  ProbeBatch p = b;
  p.shape.length = round_up(b.shape.length, of);
  p.shape.source_length = round_up(b.shape.source_length, of);
  for (auto& [field, values] : p.fields) {
    const FieldKind kind = info_of(field).kind;
    const std::int64_t from = b.shape.width(field), to = p.shape.width(field);
    const bool hides = kind == FieldKind::mask || kind == FieldKind::label;
    values.assign(static_cast<std::size_t>(b.shape.sequences * to), hides ? -1 : 0);
    for (std::int64_t r = 0; r < b.shape.sequences; ++r)
      std::copy_n(b.fields.at(field).begin() + r * from, from, values.begin() + r * to);
  }
  return p;
}

// Of the ranks of a mesh without stages and shares of sequences, which are for training alone.
std::vector<float> logits_of(const nn::Model& model, const comm::RankContext& context,
                             const inference::Weights& weights, const ProbeBatch& b,
                             std::int64_t vocab_size) {
  const comm::Mesh& mesh = context.mesh;
  const std::int64_t T = b.shape.length;
  nn::BatchShape mine = b.shape;
  mine.sequences = ceil_div(b.shape.sequences, mesh.layout.size(nn::kBatchAxes));
  inference::Inference inference(model, context, weights, mine, vocab_size);
  data::DataLoader loader(b, {data::DataLoader::rank_shape(inference.recording(), mine.sequences)},
                          data::LoaderOptions::of(mesh, 1));
  const Batch& batch = loader.load(0);
  inference.run(batch.fields);
  std::vector<float> all(static_cast<std::size_t>(b.shape.sequences * T * vocab_size));
  for (std::int64_t r = 0; r < mine.sequences * T; ++r) {
    const auto row = inference.row(r);  // collective over the tensor group
    if (r < batch.sequences * T)
      std::copy(row.begin(), row.end(), all.begin() + (batch.first * T + r) * vocab_size);
  }
  mesh.group(nn::kBatchAxes)
      .all_reduce({all.data(), DType::f32, {static_cast<std::int64_t>(all.size())}});
  return all;
}

struct Output {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> data;
};

// Unsharded gradients by part, on every rank.
std::map<std::string, Output> gradients_of(train::Engine& e) {
  std::map<std::string, Output> whole;
  const comm::Mesh& mesh = e.plan().mesh;
  const nn::ParameterSet& parameters = e.model().parameters();
  std::vector<float> mine(static_cast<std::size_t>(parameters.flat_elements()));
  device::download(e.device().stream(), mine.data(), e.flat().gradients, std::ssize(mine) * 4);
  for (int i = 0; i < parameters.size(); ++i)
    for (const nn::PartSpec& p : parameters.spec(i).parts) {
      Output& o = whole[p.name] = {"grad." + p.name, {p.rows}, {}};
      if (const std::int64_t cols = parameters.spec(i).cols) o.shape.push_back(cols);
      o.data.resize(static_cast<std::size_t>(p.rows * (o.shape.size() > 1 ? o.shape[1] : 1)));
    }
  for (const nn::PartSlice& p : parameters.slices())
    if (parameters.first_of_copies(p.parameter, nn::kModelAxes | nn::kTokenAxes))
      nn::ParameterSet::gather(p, mine.data(), whole[p.name].data.data());
  for (auto& [name, o] : whole)
    mesh.world().all_reduce({o.data.data(), DType::f32, {std::ssize(o.data)}});
  return whole;
}

void add_gradients(train::Engine& e, std::vector<Output>& out) {
  const auto whole = gradients_of(e);
  const auto part = [&](const std::string& name) { return whole.at(name).data; };
  const config::ModelConfig& m = e.plan().config.model;
  std::vector<huggingface::ExchangedTensor> tensors;
  try {
    tensors = huggingface::architecture_for(m).exchanged(m);
  } catch (const Error&) {  // no transformers architecture: tfm's names
    for (const auto& [name, o] : whole) out.push_back(o);
    return;
  }
  for (const huggingface::ExchangedTensor& t : tensors)
    out.push_back({"grad." + t.name, t.shape,
                   t.overridden ? std::vector<float>(static_cast<std::size_t>(t.elements()))
                                : huggingface::compose(t, part)});
}

config::Config probe_config(const std::string& dir, const std::vector<std::string>& overrides) {
  config::Config c = inference::checkpoint_config(dir, overrides);
  c.model.dropout = {};
  c.loss = {};
  c.parallel.zero = 0;
  c.parallel.replicas = 1;
  return c;
}

// For `ranks` that each have a share of the sequences of `batch`.
config::Config resolved(config::Config c, const ProbeBatch& batch, int ranks) {
  const bool sequence = c.parallel.sequence;
  c.parallel.sequence = false;  // checked below, for the shape given
  c.train.global_batch_tokens = c.train.micro_batch_tokens = 0;
  c.train.micro_batch_size = 1;
  c.train.global_batch_size = ranks;  // a multiple of the data ranks
  config::resolve_for_ranks(c, ranks);
  const std::int64_t sequences = ceil_div(batch.shape.sequences, c.parallel.data);
  const auto divides = [&](std::int64_t length) {
    return sequences * (length / c.parallel.context) % c.parallel.tensor == 0;
  };
  c.parallel.sequence =
      sequence && divides(batch.shape.length) && divides(batch.shape.source_length);
  return c;
}

std::vector<float> logits_without_stages(const std::string& dir, config::Config c,
                                         const ProbeBatch& batch, launch::Launch& launch) {
  c.parallel = {.tensor = c.parallel.tensor, .backend = c.parallel.backend};
  c = resolved(c, batch, launch.ranks);
  const inference::LoadedModel m = inference::load_model(dir, c, launch.rank_context(c));
  return logits_of(*m.model, m.rank_context, m.weights(), batch, c.model.vocab_size);
}

int run(int argc, char** argv) {
  const launch::Arguments args(argc, argv, {{"--batch"}, {"--out"}, {"--gradients", false}});
  if (!args.has("--batch") || !args.has("--out"))
    throw Error(ExitCode::usage, "expected --batch and --out; see --help");
  const std::string dir = inference::checkpoint_path(args.only("model directory"));
  launch::Launch launch;
  config::Config config = probe_config(dir, args.overrides());
  launch::choose_device(launch, config);
  launch.check_same(config);
  const ProbeBatch given = read_batch(args.get("--batch"), dir, config.model);
  const std::int64_t chunks = config.parallel.context > 1 ? 2 * config.parallel.context : 1;
  const ProbeBatch batch = padded(given, chunks);
  config.train.seq_len = std::max(batch.shape.length, batch.shape.source_length);
  if (config.model.position == config::Position::learned &&
      config.train.seq_len > config.model.max_seq_len)
    throw Error(ExitCode::input,
                args.get("--batch") + ": sequences of " + std::to_string(config.train.seq_len) +
                    " tokens" +
                    (chunks > 1 ? ", in " + std::to_string(chunks) + " chunks of equal length"
                                : std::string()) +
                    "; expected at most the position table's " +
                    std::to_string(config.model.max_seq_len) + " rows");
  const config::Config read = config;
  config = resolved(config, batch, launch.ranks);
  std::vector<Output> out;
  out.push_back(
      {"logits", {given.shape.sequences, given.shape.length, config.model.vocab_size}, {}});
  const bool in_parts = config.parallel.pipeline * config.parallel.context > 1;
  if (in_parts) out[0].data = logits_without_stages(dir, read, given, launch);

  const comm::Mesh mesh = launch.mesh(config::layout_of(config));
  nn::BatchShape mine = batch.shape;
  mine.sequences = ceil_div(batch.shape.sequences, config.parallel.data);
  train::Engine engine(plan::make_step_plan(config, mesh, DType::f32, mine), launch.device(config));
  engine.set_weights(
      inference::open_initial_weights(dir, config.model, engine.model().parameters(), mesh.world())
          .read);
  if (!in_parts)
    out[0].data = logits_of(engine.model(), engine.rank_context(),
                            {engine.model().parameters(), engine.flat().parameters}, batch,
                            config.model.vocab_size);
  if (batch.labelled) {
    data::DataLoader loader = engine.training_loader(batch);
    const train::StepResult r = engine.compute_gradients(1, loader.load(0));
    out.push_back({"loss", {1}, {static_cast<float>(r.loss)}});
    if (args.has("--gradients")) add_gradients(engine, out);
  } else if (args.has("--gradients")) {
    throw Error(ExitCode::input,
                args.get("--batch") + ": tensor 'labels' is missing; --gradients needs a loss");
  }
  if (mesh.rank() != 0) return 0;
  std::vector<io::TensorEntry> entries;
  for (const Output& o : out) entries.push_back({o.name, "F32", o.shape});
  io::SafetensorsWriter writer(args.get("--out"), entries);
  for (const Output& o : out) writer.write(std::span<const float>(o.data));
  writer.finish();
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return tfm::launch::guarded(argc, argv, kHelp, run); }
