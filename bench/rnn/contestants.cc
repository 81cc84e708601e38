#include "bench/rnn/contestants.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>

#include "src/rnn/cell.h"

namespace planish::bench::rnn {

namespace {

struct Maker {
  const char* who;
  Contestant (*make)(Cell cell, const Case& c, const Arrays& arrays);
};

constexpr Maker kMakers[] = {{"planish", MakePlanish},
                             {"planish-packed", MakePlanishPacked},
                             {"planish-bfloat16", MakePlanishBfloat16},
                             {"planish-int8", MakePlanishInt8},
                             {"products", MakeProducts},
                             {"torch", MakeTorchNn},
                             {"torch-cell", MakeTorchCell},
                             {"composed", MakeComposed},
                             {"onednn", MakeOneDnn}};

}  // namespace

Contestant MakeContestant(const std::string& name, const Case& c, const Arrays& arrays) {
  const std::string who = name.substr(0, name.find(':'));
  const auto* maker = std::ranges::find_if(kMakers, [&](const Maker& m) { return who == m.who; });
  if (maker == std::end(kMakers)) {
    throw std::invalid_argument(
        "[MakeContestant] name must begin with planish:, planish-packed:, planish-bfloat16:, "
        "planish-int8:, products:, torch:, torch-cell:, composed: or onednn:, got \"" +
        name + "\"");
  }
  const Cell cell = CellOf(name);
  if (c.shape.projected > 0 && !internal::RecipeOf(cell).is_lstm()) {
    return {.absent = "has no projection"};
  }
  const bool dense = c.shape.projected == 0 && c.shape.heads == 1;
  const bool planish = who.starts_with("planish");
  if (!dense && !planish && (who != "torch" || c.shape.heads > 1)) {
    return {.absent = "is measured without projections and heads"};
  }
  return maker->make(cell, c, arrays);
}

Cell CellOf(const std::string& name) {
  const size_t colon = name.find(':');
  return ParseCell(colon == std::string::npos ? "" : name.substr(colon + 1));
}

WeightType WeightTypeOf(const std::string& name) {
  for (const internal::NamedWeightType& type : internal::kWeightTypes) {
    if (name.starts_with(std::string("planish-") + type.name + ":")) return type.type;
  }
  return WeightType::kFull;
}

}  // namespace planish::bench::rnn
