#pragma once
// Options whose value is one of several words. words() lists the words as a configuration writes
// them, in the order of the enumerators.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "comm/mesh.h"

namespace tfm::config {

enum class Family : std::uint8_t { unset, encoder, decoder, encoder_decoder };
enum class Position : std::uint8_t { learned, sinusoidal, rope, alibi, relative, none };
enum class Sinusoid : std::uint8_t { interleaved, halves, tensor2tensor };
enum class Norm : std::uint8_t { layernorm, rmsnorm };
enum class NormPosition : std::uint8_t { pre, post, inner, both };
// Norms of queries and keys: of each head, or over the whole width.
enum class QkNorm : std::uint8_t { none, heads, whole };
enum class Activation : std::uint8_t {
  relu,
  gelu,
  gelu_tanh,
  silu,
  swiglu,
  geglu,
  geglu_exact,
  clamped_swiglu
};
enum class RopeScalingType : std::uint8_t { llama3, linear, ntk, yarn, longrope };
// yes and no: for models with one stack; the others: for an encoder_decoder.
enum class TieEmbeddings : std::uint8_t { yes, no, all, inputs, decoder, none };
// Whether token embeddings are multiplied by sqrt(d_model), or by it rounded to the precision.
enum class ScaleEmbeddings : std::uint8_t { no, yes, rounded };
enum class Switch : std::uint8_t { automatic, yes, no };
enum class HeadBias : std::uint8_t { automatic, yes, no, frozen };
// Which hidden states are the summary of a sequence. automatic: the first one of an encoder, else
// the last.
enum class Pool : std::uint8_t { automatic, first, mean, last };
// The activation of a dense layer between a summary and what is predicted from it; none: no such
// layer; transform: the model's activation, and a norm behind it (ModernBERT's head). automatic:
// tanh behind the first hidden state of an encoder (BERT's pooler), else none.
enum class Pooler : std::uint8_t { automatic, none, tanh, relu, transform };
// How scores of experts become probabilities: over all experts, or each on its own.
enum class Router : std::uint8_t { softmax, sigmoid };
// What the random blocks of a block of queries are: drawn, or the first block, counted so often.
enum class OtherBlocks : std::uint8_t { drawn, first };
// What keeps the load of experts even.
enum class Balance : std::uint8_t { loss, bias, both, none };
// Over what a balance is a mean.
enum class BalanceOver : std::uint8_t { sequence, batch };
enum class Precision : std::uint8_t { fp32, bf16, fp16 };
enum class Recompute : std::uint8_t { none, selective, full, automatic };
enum class CudaGraphs : std::uint8_t { automatic, on, off };
enum class Numerics : std::uint8_t { normal, deterministic };
enum class DeviceKind : std::uint8_t { automatic, cpu, cuda };
enum class PipelineSchedule : std::uint8_t { one_forward_one_backward, interleaved };
enum class ContextExchange : std::uint8_t { gather, ring };
using comm::Backend;
enum class OptimizerType : std::uint8_t { adamw, adam, sgd, lamb, adafactor, muon };
enum class AdjustLr : std::uint8_t { original, match_rms_adamw };
enum class ScheduleType : std::uint8_t { constant, linear, cosine, noam, inverse_sqrt, wsd };
enum class SmoothingDenominator : std::uint8_t { vocabulary, others };
enum class Metric : std::uint8_t { loss, perplexity, accuracy, bleu, chrf };
enum class Documents : std::uint8_t { joined, separate, packed };
enum class AddBegin : std::uint8_t { automatic, on, off };

template <std::size_t N>
using Words = std::array<std::string_view, N>;

constexpr Words<2> words(PipelineSchedule) { return {"1f1b", "interleaved"}; }
constexpr Words<2> words(ContextExchange) { return {"gather", "ring"}; }
constexpr Words<4> words(Family) { return {"", "encoder", "decoder", "encoder_decoder"}; }
constexpr Words<6> words(Position) {
  return {"learned", "sinusoidal", "rope", "alibi", "relative", "none"};
}
constexpr Words<3> words(Sinusoid) { return {"interleaved", "halves", "tensor2tensor"}; }
constexpr Words<2> words(Norm) { return {"layernorm", "rmsnorm"}; }
constexpr Words<4> words(Pool) { return {"auto", "first", "mean", "last"}; }
constexpr Words<5> words(Pooler) { return {"auto", "none", "tanh", "relu", "transform"}; }
constexpr Words<2> words(Router) { return {"softmax", "sigmoid"}; }
constexpr Words<2> words(OtherBlocks) { return {"drawn", "first"}; }
constexpr Words<4> words(Balance) { return {"loss", "bias", "both", "none"}; }
constexpr Words<2> words(BalanceOver) { return {"sequence", "batch"}; }
constexpr Words<4> words(NormPosition) { return {"pre", "post", "inner", "both"}; }
constexpr Words<3> words(QkNorm) { return {"false", "true", "whole"}; }
constexpr Words<8> words(Activation) {
  return {"relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "geglu_exact", "clamped_swiglu"};
}
constexpr Words<5> words(RopeScalingType) {
  return {"llama3", "linear", "ntk", "yarn", "longrope"};
}
constexpr Words<6> words(TieEmbeddings) {
  return {"true", "false", "all", "inputs", "decoder", "none"};
}
constexpr Words<3> words(ScaleEmbeddings) { return {"false", "true", "rounded"}; }
constexpr Words<3> words(Switch) { return {"", "true", "false"}; }
constexpr Words<4> words(HeadBias) { return {"", "true", "false", "frozen"}; }
constexpr Words<3> words(Precision) { return {"fp32", "bf16", "fp16"}; }
constexpr Words<4> words(Recompute) { return {"none", "selective", "full", "auto"}; }
constexpr Words<3> words(CudaGraphs) { return {"auto", "on", "off"}; }
constexpr Words<2> words(Numerics) { return {"default", "deterministic"}; }
constexpr Words<3> words(DeviceKind) { return {"auto", "cpu", "cuda"}; }
constexpr Words<3> words(Backend) { return {"auto", "nccl", "mpi"}; }
constexpr Words<6> words(OptimizerType) {
  return {"adamw", "adam", "sgd", "lamb", "adafactor", "muon"};
}
constexpr Words<2> words(AdjustLr) { return {"original", "match_rms_adamw"}; }
constexpr Words<6> words(ScheduleType) {
  return {"constant", "linear", "cosine", "noam", "inverse_sqrt", "wsd"};
}
constexpr Words<2> words(SmoothingDenominator) { return {"vocabulary", "others"}; }
constexpr Words<5> words(Metric) { return {"loss", "perplexity", "accuracy", "bleu", "chrf"}; }
constexpr Words<3> words(Documents) { return {"joined", "separate", "packed"}; }
constexpr Words<3> words(AddBegin) { return {"auto", "true", "false"}; }

// The word of a value; "" for the value of a key that is not set.
template <class E>
std::string word(E value) {
  return std::string(words(value)[static_cast<std::size_t>(value)]);
}

// The value of a word; nullopt for any other text.
template <class E>
constexpr std::optional<E> value_of(std::string_view text) {
  const auto all = words(E{});
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i] == text) return static_cast<E>(i);
  return std::nullopt;
}

}  // namespace tfm::config
