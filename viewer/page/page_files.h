// The parts of a page that are the same for all runs, kept next to this file as page.css, page.html
// and *.js: the build embeds them in the program.
#pragma once

#include <string_view>

namespace shardlens::viewer {

std::string_view page_style();
/// Returns what the script puts into the page: two templates, for the header and for the panels.
std::string_view page_elements();
std::string_view page_script();

}  // namespace shardlens::viewer
