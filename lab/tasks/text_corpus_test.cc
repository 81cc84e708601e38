#include <gtest/gtest.h>

#include "lab/tasks/corpus.h"
