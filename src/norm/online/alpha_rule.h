#ifndef PLANISH_SRC_NORM_ONLINE_ALPHA_RULE_H_
#define PLANISH_SRC_NORM_ONLINE_ALPHA_RULE_H_

#include "planish/online_norm.h"

namespace planish::internal {

struct AlphaRuleName {
  const char* name;
  AlphaRule rule;
};

/// All rules. The only table of their names.
inline constexpr AlphaRuleName kAlphaRules[] = {{"constant", AlphaRule::kConstant},
                                                {"inverse", AlphaRule::kInverse},
                                                {"warmup", AlphaRule::kWarmup}};

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_ONLINE_ALPHA_RULE_H_
