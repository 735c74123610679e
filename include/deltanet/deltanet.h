#pragma once

#include "deltanet/error.h"
#include "deltanet/interrupt.h"
#include "deltanet/model.h"
#include "deltanet/optimizer.h"
#include "deltanet/recurrence.h"
#include "deltanet/reference.h"
#include "deltanet/rows.h"
#include "deltanet/runtime.h"
#include "deltanet/short_conv.h"
#include "deltanet/tensor.h"
#include "deltanet/tokenizer.h"
