// The style and the script of a page, kept next to this file as page.css and *.js: the build embeds
// them in the program.
#pragma once

#include <string_view>

namespace shardlens::viewer {

std::string_view page_style();
std::string_view page_script();

}  // namespace shardlens::viewer
