// The style and the script of a page, which lie beside this file as page.css and *.js: the build
// makes them a part of the program.
#pragma once

#include <string_view>

namespace shardlens::viewer {

std::string_view page_style();
std::string_view page_script();

}  // namespace shardlens::viewer
