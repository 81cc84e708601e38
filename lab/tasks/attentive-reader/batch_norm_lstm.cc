#include "lab/tasks/attentive-reader/batch_norm_lstm.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "lab/model/linear.h"

namespace planish::lab {

namespace {

// Minimum number of sequences that reach a step for its own estimates.
constexpr double kMinSequences = 16;

}  // namespace

BatchNormLstm::BatchNormLstm(const Options& options)
    : options_(options),
      layer_(register_module(
          "layer", nn::LayerNormLSTM(nn::LayerNormLSTMOptions(options.inputs, options.hidden)
                                         .variant(Cell::kBnLstm)
                                         .eps(options.epsilon)))),
      mean_(register_buffer("mean", at::zeros({options.steps, 9 * options.hidden}))),
      variance_(register_buffer("variance", at::ones({options.steps, 9 * options.hidden}))) {
  at::NoGradGuard no_grad;
  for (auto& item : layer_->named_parameters()) {
    const bool is_gain =
        item.key().starts_with("ln_") && item.key().find("_weight") != item.key().npos;
    if (is_gain) item.value().fill_(options.gain);
  }
}

std::pair<at::Tensor, at::Tensor> BatchNormLstm::forward(const at::Tensor& x,
                                                         const at::Tensor& state,
                                                         const at::Tensor& lengths) {
  // The cell has no kernels for GPUs.
  if (!is_training() || options_.composed || !x.is_cpu()) return Composed(x, state, lengths);
  nn::RnnSequences sequences;
  sequences.lengths = lengths;
  const auto [y, last] = layer_->forward(x, std::make_tuple(state[0], state[1]), sequences);
  return {y, at::stack({std::get<0>(last), std::get<1>(last)})};
}

at::Tensor BatchNormLstm::ZeroState(int64_t batch) const {
  return at::zeros({2, 1, batch, options_.hidden}, mean_.options());
}

void BatchNormLstm::BeginEstimates() {
  const auto options = mean_.options().dtype(at::kDouble);
  sums_.count = at::zeros({options_.steps}, options);
  sums_.mean = at::zeros({options_.steps, 9 * options_.hidden}, options);
  sums_.variance = at::zeros_like(sums_.mean);
}

void BatchNormLstm::EndEstimates() {
  at::NoGradGuard no_grad;
  const at::Tensor cpu_count = sums_.count.cpu();
  const double* counts = cpu_count.const_data_ptr<double>();
  std::vector<int64_t> from(static_cast<size_t>(options_.steps));
  int64_t last = 0;
  for (int64_t t = 0; t < options_.steps; ++t) {
    if (counts[t] >= kMinSequences) last = t;
    from[static_cast<size_t>(t)] = last;
  }
  const at::Tensor steps = at::tensor(from, at::kLong).to(mean_.device());
  const at::Tensor count = sums_.count.clamp_min(1).unsqueeze(1);
  mean_.copy_((sums_.mean / count).index_select(0, steps));
  variance_.copy_((sums_.variance / count).index_select(0, steps));
  sums_ = {};
}

// Normalizes z [B, n], the sums or c of step `step`, whose statistics are columns `column` and on
// of the estimates. `active` [B, 1] marks sequences that have the step; undefined: all.
at::Tensor BatchNormLstm::Normalize(const at::Tensor& z, int64_t step, int64_t column,
                                    const at::Tensor& active) {
  Statistics statistics;
  const int64_t known = std::min(step, options_.steps - 1);
  if (is_training() || sums_.count.defined()) {
    const at::Tensor count =
        active.defined() ? active.sum().clamp_min(1) : at::scalar_tensor(z.size(0));
    const auto mean = [&](const at::Tensor& t) {
      return (active.defined() ? t * active : t).sum(0) / count;
    };
    statistics.mean = mean(z);
    statistics.variance = mean((z - statistics.mean).square());
    if (sums_.count.defined() && step == known) {
      sums_.mean[known].narrow(0, column, z.size(1)) += statistics.mean * count;
      sums_.variance[known].narrow(0, column, z.size(1)) += statistics.variance * count;
    }
  } else {
    statistics.mean = mean_[known].narrow(0, column, z.size(1));
    statistics.variance = variance_[known].narrow(0, column, z.size(1));
  }
  return (z - statistics.mean) * (statistics.variance + options_.epsilon).rsqrt();
}

std::pair<at::Tensor, at::Tensor> BatchNormLstm::Composed(const at::Tensor& x,
                                                          const at::Tensor& state,
                                                          const at::Tensor& lengths) {
  const auto parameters = layer_->named_parameters();
  const auto p = [&](const char* name) { return parameters[name]; };
  const int64_t hidden = options_.hidden;
  at::Tensor active;
  if (lengths.defined()) {
    active = (at::arange(x.size(0), lengths.options()).unsqueeze(1) < lengths)
                 .unsqueeze(2)
                 .to(x.scalar_type());
  }
  const at::Tensor zx = LinearProduct(x, p("weight_ih_l0"), {});
  at::Tensor h = state[0][0].contiguous(), c = state[1][0];
  std::vector<at::Tensor> y;
  for (int64_t t = 0; t < x.size(0); ++t) {
    const at::Tensor now = active.defined() ? active[t] : active;
    const at::Tensor zh = LinearProduct(h, p("weight_hh_l0"), {});
    const std::vector<at::Tensor> gates =
        (Normalize(zx[t], t, 0, now) * p("ln_ih_weight_l0") +
         Normalize(zh, t, 4 * hidden, now) * p("ln_hh_weight_l0") + p("bias_ih_l0"))
            .chunk(4, 1);
    const at::Tensor next_c = gates[1].sigmoid() * c + gates[0].sigmoid() * gates[2].tanh();
    const at::Tensor seen =
        Normalize(next_c, t, 8 * hidden, now) * p("ln_c_weight_l0") + p("ln_c_bias_l0");
    const at::Tensor next_h = gates[3].sigmoid() * seen.tanh();
    if (now.defined()) {
      const at::Tensor has = now.to(at::kBool);
      y.push_back(next_h * now);
      h = at::where(has, next_h, h);
      c = at::where(has, next_c, c);
      if (sums_.count.defined() && t < options_.steps) sums_.count[t] += now.sum();
    } else {
      y.push_back(next_h);
      h = next_h;
      c = next_c;
      if (sums_.count.defined() && t < options_.steps) sums_.count[t] += x.size(1);
    }
  }
  return {at::stack(y), at::stack({h, c}).unsqueeze(1)};
}

}  // namespace planish::lab
