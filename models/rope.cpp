#include "models/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tfm::models {
namespace {

using config::RopeScaling;

// theta^(-2i/R), i < R/2.
std::vector<double> unscaled(std::int64_t columns, double theta) {
  std::vector<double> f;
  for (std::int64_t i = 0; i < columns / 2; ++i)
    f.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(columns)));
  return f;
}

double llama3(double frequency, const RopeScaling& s) {
  const double wavelength = 2 * std::numbers::pi / frequency,
               length = static_cast<double>(s.original_max_seq_len);
  const double smooth =
      (length / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  if (wavelength > length / s.low_freq_factor) return frequency / s.factor;
  if (wavelength < length / s.high_freq_factor) return frequency;
  return (1 - smooth) * frequency / s.factor + smooth * frequency;
}

// Frequencies that turn often within the original length stay, those that turn rarely are divided,
// and a ramp over their indices joins them (Peng et al. 2024, section 3.2).
void yarn(std::vector<double>& f, std::int64_t columns, double theta, const RopeScaling& s) {
  const auto width = static_cast<double>(columns);
  const auto index = [&](double turns) {
    return width *
           std::log(static_cast<double>(s.original_max_seq_len) / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  double low = index(s.beta_fast), high = index(s.beta_slow);
  if (s.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, width - 1);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < f.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    f[i] = f[i] / s.factor * ramp + f[i] * (1 - ramp);
  }
}

double mscale(double factor, double by) {
  return factor <= 1 ? 1 : 0.1 * by * std::log(factor) + 1;
}

double turned_factor(const RopeScaling& s) {
  if (s.attention_factor > 0) return s.attention_factor;
  if (s.type == config::RopeScalingType::yarn)
    return s.mscale > 0 && s.mscale_all_dim > 0
               ? mscale(s.factor, s.mscale) / mscale(s.factor, s.mscale_all_dim)
               : mscale(s.factor, 1);
  return s.factor <= 1 ? 1
                       : std::sqrt(1 + std::log(s.factor) /
                                           std::log(static_cast<double>(s.original_max_seq_len)));
}

std::vector<double> divided(std::vector<double> f, const std::vector<double>& by) {
  for (std::size_t i = 0; i < f.size(); ++i) f[i] /= by.at(i);
  return f;
}

}  // namespace

nn::Rotary rotary_of(const config::LayerConfig& layer, const config::LongRopeConfig& long_rope,
                     std::int64_t columns) {
  if (layer.position != config::Position::rope) return {};
  const config::RopeConfig& rope = layer.rope;
  const RopeScaling& s = rope.scaling;
  columns = rope.columns(columns);
  double theta = rope.theta;
  const auto width = static_cast<double>(columns);
  if (s.on() && s.type == config::RopeScalingType::ntk)
    theta *= std::pow(s.factor, width / (width - 2));
  nn::Rotary r{.frequency = unscaled(columns, theta)};
  if (!s.on()) return r;
  switch (s.type) {
    case config::RopeScalingType::llama3:
      for (double& f : r.frequency) f = llama3(f, s);
      break;
    case config::RopeScalingType::linear:
      for (double& f : r.frequency) f /= s.factor;
      break;
    case config::RopeScalingType::ntk:
      break;
    case config::RopeScalingType::yarn:
      yarn(r.frequency, columns, theta, s);
      r.factor = turned_factor(s);
      break;
    case config::RopeScalingType::longrope:
      r.long_frequency = divided(r.frequency, long_rope.long_factor);
      r.frequency = divided(r.frequency, long_rope.short_factor);
      r.original_length = s.original_max_seq_len;
      r.factor = turned_factor(s);
      break;
  }
  return r;
}

double latent_score_factor(const config::RopeConfig& rope) {
  const RopeScaling& s = rope.scaling;
  if (s.type != config::RopeScalingType::yarn || s.mscale_all_dim == 0) return 1;
  const double m = mscale(s.factor, s.mscale_all_dim);
  return m * m;
}

}  // namespace tfm::models
