#include "lab/reproduce/plan.h"
