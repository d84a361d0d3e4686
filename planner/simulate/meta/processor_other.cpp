#include "planner/simulate/meta/processor.h"

namespace shardlens::planner::meta {

Processor this_processor() { return {}; }

}  // namespace shardlens::planner::meta
