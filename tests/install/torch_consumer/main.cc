#include <ATen/Functions.h>
#include <planish/torch.h>

#include <cmath>
#include <iostream>
#include <tuple>

int main() {
  planish::nn::LayerNorm norm(planish::nn::LayerNormOptions({3}).eps(1e-5));
  std::cout << norm << "\n";

  // Two rows of three. The second is the first with ten million added, which leaves xhat as it is.
  const at::Tensor x = at::tensor({-1.f, 0.f, 1.f, 9999999.f, 10000000.f, 10000001.f})
                           .reshape({2, 3})
                           .requires_grad_(true);
  const at::Tensor y = norm(x);
  const at::Tensor dy = at::tensor({1.f, 0.f, 0.f, 0.f, 1.f, 0.f}).reshape({2, 3});
  y.backward(dy);
  std::cout << "y =\n"
            << y << "\ndx =\n"
            << x.grad() << "\ndweight =\n"
            << norm->weight.grad() << "\n";

  // xhat of (-1, 0, 1) is (-s, 0, s). Both rows agree with that to float's last digits.
  const double s = 1 / std::sqrt(2.0 / 3 + 1e-5);
  const at::Tensor xhat = at::tensor({-s, 0.0, s}, at::kDouble);
  if (!((y - xhat).abs().max().item<double>() < 1e-6)) return 1;
  // dweight = sum of dy * xhat, dbias = sum of dy.
  const at::Tensor dweight = at::tensor({-s, 0.0, 0.0}, at::kDouble);
  if (!((norm->weight.grad() - dweight).abs().max().item<double>() < 1e-6)) return 1;
  if (!norm->bias.grad().equal(at::tensor({1.f, 1.f, 0.f}))) return 1;
  // dx = s * (dy - mean(dy) - xhat * mean(dy * xhat)).
  const double m = s * s / 3;  // the last term of the first element
  const at::Tensor dx =
      at::tensor({s * (2.0 / 3 - m), s * (-1.0 / 3), s * (-1.0 / 3 + m), -s / 3, 2 * s / 3, -s / 3},
                 at::kDouble)
          .reshape({2, 3});
  if (!((x.grad() - dx).abs().max().item<double>() < 1e-6)) return 1;

  // A layer-normalized LSTM over four steps of two sequences. Its last hidden state is its last
  // output.
  planish::nn::LayerNormLSTM lstm(planish::nn::LayerNormLSTMOptions(3, 5));
  const auto [out, state] = lstm(at::randn({4, 2, 3}));
  out.sum().backward();
  if (!out[3].equal(std::get<0>(state)[0])) return 1;
  return lstm->named_parameters()["weight_hh_l0"].grad().abs().sum().item<double>() > 0 ? 0 : 1;
}
