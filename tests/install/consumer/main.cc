#include <planish/norm.h>
#include <planish/rnn.h>

#include <cmath>
#include <cstdio>
#include <vector>

using planish::Norm;

// An LN-LSTM over a sequence of three steps, and then step by step with its parameters packed once:
// the same bits.
bool RecurrentLayerAgreesWithItself() {
  using planish::Cell;
  constexpr int64_t kTime = 3, kInputs = 2, kHidden = 5;
  std::vector<float> weight_ih(4 * kHidden * kInputs), weight_hh(4 * kHidden * kHidden);
  std::vector<float> x(kTime * kInputs), y(kTime * kHidden), h(kHidden, 0.f), c(kHidden, 0.f);
  for (size_t i = 0; i < weight_ih.size(); ++i) weight_ih[i] = std::sin(1.f + i);
  for (size_t i = 0; i < weight_hh.size(); ++i) weight_hh[i] = std::sin(2.f * i);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::cos(3.f * i);
  const planish::RnnParams<const float> params = {.weight_ih = weight_ih.data(),
                                                  .weight_hh = weight_hh.data()};
  planish::RnnForwardArgs<float> forward;
  forward.inputs.shape = {kTime, 1, kInputs, kHidden};
  forward.inputs.x = x.data();
  forward.inputs.params = params;
  forward.y = y.data();
  planish::RnnForward(Cell::kLnLstm, forward);

  planish::RnnOptions<float> options;
  options.packed = planish::RnnPackedParams<float>(Cell::kLnLstm, kInputs, kHidden, params);
  planish::RnnStepArgs<float> step = {.batch = 1, .inputs = kInputs, .hidden = kHidden};
  step.h = step.h_next = h.data();
  step.c = step.c_next = c.data();
  for (int64_t t = 0; t < kTime; ++t) {
    step.x = x.data() + t * kInputs;
    planish::RnnStep(Cell::kLnLstm, step, options);
    for (int64_t k = 0; k < kHidden; ++k) {
      if (h[k] != y[t * kHidden + k]) return false;
    }
  }
  return h[0] != 0;
}

int main() {
  // Two rows of three. The second is the first with ten million added, which leaves xhat as it is.
  const std::vector<float> x = {-1, 0, 1, 9999999, 10000000, 10000001};
  const std::vector<float> gain = {1, 2, 3}, bias = {0, 0, 10};
  std::vector<float> y(6), mean(2), mean_lo(2), rstd(2);
  const planish::NormForwardArgs<float> forward = {.rows = 2,
                                                   .cols = 3,
                                                   .x = x.data(),
                                                   .gain = gain.data(),
                                                   .bias = bias.data(),
                                                   .y = y.data(),
                                                   .mean = mean.data(),
                                                   .mean_lo = mean_lo.data(),
                                                   .rstd = rstd.data()};
  planish::NormForward(Norm::kLayer, forward, {.eps = 1e-5});

  // And back: from dy = dL/dy to the gradients of the input and of the parameters.
  const std::vector<float> dy = {1, 0, 0, 0, 1, 0};
  std::vector<float> dx(6), dgain(3), dbias(3);
  const planish::NormBackwardArgs<float> backward = {.rows = 2,
                                                     .cols = 3,
                                                     .dy = dy.data(),
                                                     .x = x.data(),
                                                     .gain = gain.data(),
                                                     .mean = mean.data(),
                                                     .mean_lo = mean_lo.data(),
                                                     .rstd = rstd.data(),
                                                     .dx = dx.data(),
                                                     .dgain = dgain.data(),
                                                     .dbias = dbias.data()};
  planish::NormBackward(Norm::kLayer, backward);

  for (int r = 0; r < 2; ++r) {
    std::printf("y = %9.6f %9.6f %9.6f   dx = %9.6f %9.6f %9.6f\n", y[3 * r], y[3 * r + 1],
                y[3 * r + 2], dx[3 * r], dx[3 * r + 1], dx[3 * r + 2]);
  }

  // A wrong argument is an exception that says what is wrong with it.
  try {
    planish::NormForward<float>(Norm::kLayer, {.rows = -1, .cols = 3});
  } catch (const planish::Error& error) {
    std::puts(error.what());  // [NormForward] rows must be at least 0, got -1
  }

  // xhat of (-1, 0, 1) is (-s, 0, s). Both rows agree with that to float's last digits.
  const double s = 1 / std::sqrt(2.0 / 3 + 1e-5);
  const double y_expected[] = {-s, 0, 3 * s + 10};
  for (int i = 0; i < 6; ++i) {
    if (!(std::abs(y[i] - y_expected[i % 3]) < 2e-6)) return 1;
  }
  // dgain = sum of dy * xhat, dbias = sum of dy, and the gradient of a shift of a row is zero.
  if (!(std::abs(dgain[0] + s) < 1e-6 && dgain[1] == 0 && dbias[1] == 1)) return 1;
  if (!(std::abs(dx[0] + dx[1] + dx[2]) < 1e-6)) return 1;
  return RecurrentLayerAgreesWithItself() ? 0 : 1;
}
