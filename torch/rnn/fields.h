#ifndef PLANISH_TORCH_RNN_FIELDS_H_
#define PLANISH_TORCH_RNN_FIELDS_H_

#include <array>
#include <cstddef>
#include <iterator>
#include <string_view>

#include "planish/torch_rnn.h"
#include "src/rnn/cell.h"

// The table of the tensors of a layer.
namespace planish {

/// A tensor of a layer.
struct Field {
  const char* name;
  at::Tensor RnnTensors::* member;
};
inline constexpr Field kFields[] = {{"x", &RnnTensors::x},
                                    {"weight_ih", &RnnTensors::weight_ih},
                                    {"weight_hh", &RnnTensors::weight_hh},
                                    {"bias", &RnnTensors::bias},
                                    {"bias_hn", &RnnTensors::bias_hn},
                                    {"ln_ih_weight", &RnnTensors::ln_ih_weight},
                                    {"ln_ih_bias", &RnnTensors::ln_ih_bias},
                                    {"ln_hh_weight", &RnnTensors::ln_hh_weight},
                                    {"ln_hh_bias", &RnnTensors::ln_hh_bias},
                                    {"ln_weight", &RnnTensors::ln_weight},
                                    {"ln_bias", &RnnTensors::ln_bias},
                                    {"ln_c_weight", &RnnTensors::ln_c_weight},
                                    {"ln_c_bias", &RnnTensors::ln_c_bias},
                                    {"weight_hr", &RnnTensors::weight_hr},
                                    {"h0", &RnnTensors::h0},
                                    {"c0", &RnnTensors::c0},
                                    {"h_reset", &RnnTensors::h_reset},
                                    {"c_reset", &RnnTensors::c_reset},
                                    {"lengths", &RnnTensors::lengths},
                                    {"resets", &RnnTensors::resets}};
inline constexpr size_t kX = 0, kFirstParam = 1, kWeightHr = 13, kH0 = 14, kC0 = 15, kHReset = 16,
                        kCReset = 17, kLengths = 18, kResets = 19;
inline constexpr size_t kTensors = std::size(kFields);
inline constexpr size_t kStepTensors = kHReset;       // rnn_step has the first kStepTensors fields
inline constexpr size_t kDifferentiables = kLengths;  // the first kDifferentiables fields

/// The fields in the order of the operators' arguments: weight_hr is the last, because saved
/// programs pass the others by position.
inline constexpr auto kArguments = [] {
  std::array<size_t, kTensors> order{};
  size_t argument = 0;
  for (size_t field = 0; field < kTensors; ++field) {
    if (field != kWeightHr) order[argument++] = field;
  }
  order[argument] = kWeightHr;
  return order;
}();

/// Calls f(field) for the fields in [begin, end), in the order of the operators' arguments.
template <class F>
void ForArguments(size_t begin, size_t end, const F& f) {
  for (const size_t field : kArguments) {
    if (field >= begin && field < end) f(field);
  }
}

static_assert(
    [] {
      const auto params = internal::ParamsOf<const float>(internal::RecipeOf(Cell::kLstm), {});
      for (size_t i = 0; i < params.size(); ++i) {
        if (std::string_view(params[i].name) != kFields[kFirstParam + i].name) return false;
      }
      return kFirstParam + params.size() == kH0;
    }(),
    "parameters are in the order of the core's table");

}  // namespace planish

#endif  // PLANISH_TORCH_RNN_FIELDS_H_
