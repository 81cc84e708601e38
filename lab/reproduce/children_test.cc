#include "lab/reproduce/children.h"
